//go:build integration

package examples_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

// play is the main function of the services that the units start: the test binary plays them.
func play(service string) int {
	err := error(nil)
	switch service {
	case "make-report":
		fmt.Println("report made")
	case "worker":
		err = work()
	case "idle":
		time.Sleep(2 * testkit.Patience) // far longer than any test
	default:
		err = fmt.Errorf("no service %s", service)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// work says READY with what it knows of itself, has a child as servers do, and works until a
// signal ends it.
func work() error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: os.Getenv("NOTIFY_SOCKET"), Net: "unixgram"})
	if err == nil && os.Getenv("WITH_CHILD") != "" {
		err = exec.Command(os.Args[0], "play", "idle").Start()
	}
	if err == nil {
		_, err = fmt.Fprintf(conn, "READY=1\nSTATUS=pid %d, watchdog for %s, %s us",
			os.Getpid(), os.Getenv("WATCHDOG_PID"), os.Getenv("WATCHDOG_USEC"))
	}
	if err == nil {
		time.Sleep(2 * testkit.Patience)
	}
	return err
}

// execStart returns the command line of a unit, with the built golock and with the test binary as
// the service.
func execStart(t *testing.T, unit string) []string {
	t.Helper()
	for _, line := range lines(read(t, "systemd", unit)) {
		after, ok := strings.CutPrefix(line, "ExecStart=")
		if !ok {
			continue
		}
		argv := strings.Fields(after)
		i := slices.Index(argv, "--")
		if argv[0] != "/usr/bin/golock" || i < 0 || len(argv) != i+2 {
			t.Fatalf("%s: not a command under golock: %s", unit, line)
		}
		self, err := os.Executable()
		testkit.Must(t, err)
		return slices.Concat([]string{testkit.Golock}, argv[1:i+1], []string{self, "play", filepath.Base(argv[i+1])})
	}
	t.Fatalf("%s: no ExecStart", unit)
	return nil
}

// service is one unit run by the test in systemd's place.
type service struct {
	*testkit.Process
	notify *net.UnixConn // what the service tells systemd
}

// startService starts argv as systemd does: the PID that the variables name is the one that is
// executed.
func startService(s *testkit.Sandbox, argv []string, env ...string) *service {
	t := s.T
	t.Helper()
	address := filepath.Join(testkit.Place(t, 0o755), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	raw, err := conn.SyscallConn()
	testkit.Must(t, err)
	testkit.Must(t, raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	}))
	testkit.Must(t, err)
	vars := "NOTIFY_SOCKET='" + address + "' WATCHDOG_USEC=30000000 WATCHDOG_PID=$$"
	return &service{s.Exec(argv...).Sh("export " + vars).Setenv(env...).Begin(), conn}
}

// ready waits for READY=1 and returns who has sent it, as the kernel says, with the message.
func (s *service) ready() (pid int, message string) {
	s.T.Helper()
	b, oob := make([]byte, 4096), make([]byte, 4096)
	testkit.Must(s.T, s.notify.SetReadDeadline(time.Now().Add(testkit.Patience)))
	n, oobn, _, _, err := s.notify.ReadMsgUnix(b, oob)
	testkit.Must(s.T, err)
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	testkit.Must(s.T, err)
	credentials, err := unix.ParseUnixCredentials(&messages[0])
	testkit.Must(s.T, err)
	return int(credentials.Pid), string(b[:n])
}

// With --exec the service is the main process: READY and the watchdog are its own, and it is
// stopped directly. A socket of systemd's belongs to that process alone (sd_listen_fds(3)).
func TestSystemdExec(t *testing.T) {
	t.Parallel()
	if argv := execStart(t, "echo.service"); !slices.Contains(argv, "--exec") {
		t.Errorf("echo.service does not use --exec: %q", argv)
	}
	s := sandbox(t, "", "")
	p := startService(s, execStart(t, "worker.service"))
	pid, message := p.ready()
	want := fmt.Sprintf("READY=1\nSTATUS=pid %d, watchdog for %[1]d, 30000000 us", p.PID)
	if pid != p.PID || message != want {
		t.Errorf("PID %d said %q; want %d, %q", pid, message, p.PID, want)
	}
	s.Lock("worker", "-n", "--", "true").Run().Expect(t, 75)
	p.Signal(syscall.SIGTERM)
	if r := p.Wait(); r.Signal != syscall.SIGTERM {
		t.Errorf("stopped: %v", r)
	}
	s.NoneLeft()
	s.Lock("worker", "-n", "--", "true").Run().Expect(t, 0)
}

// Without --exec golock is the main process: READY comes from its command, which is why the unit
// says NotifyAccess=all, and TERM to golock alone ends the command with all it has started.
func TestSystemdSupervisor(t *testing.T) {
	t.Parallel()
	const unit = "worker-limited@.service"
	for _, line := range []string{"NotifyAccess=all", "KillMode=mixed"} {
		if !slices.Contains(lines(read(t, "systemd", unit)), line) {
			t.Errorf("%s does not say %s", unit, line)
		}
	}
	argv := execStart(t, unit)
	okExit := slices.Insert(slices.Clone(argv), 2, "--ok-exit", "143")
	for _, c := range []struct {
		argv []string
		all  bool           // TERM to every process, as KillMode=control-group does
		end  syscall.Signal // 0: golock exits with 0
	}{{okExit, false, 0}, {argv, false, syscall.SIGTERM}, {okExit, true, 0}, {argv, true, syscall.SIGTERM}} {
		s := sandbox(t, "", "")
		p := startService(s, c.argv, "WITH_CHILD=1")
		pid, message := p.ready()
		if pid == p.PID || !strings.HasPrefix(message, fmt.Sprintf("READY=1\nSTATUS=pid %d,", pid)) {
			t.Errorf("PID %d said %q, golock is %d", pid, message, p.PID)
		}
		all := s.Living()
		p.Signal(syscall.SIGTERM)
		for _, pid := range all {
			if c.all && pid != p.PID {
				s.Signal(pid, syscall.SIGTERM)
			}
		}
		if r := p.Wait(); r.Signal != c.end || c.end == 0 && r.Code != 0 {
			t.Errorf("%q: %v, want signal %d or 0", c.argv, r, c.end)
		}
		s.NoneLeft()
		s.Lock("worker-limited", "-n", "--", "true").Run().Expect(t, 0)
	}
}

// The timer's job is skipped, with success and without a word, while the same job runs by hand.
func TestSystemdTimerJob(t *testing.T) {
	t.Parallel()
	s, argv := sandbox(t, "", ""), execStart(t, "nightly-report.service")
	byHand := s.Hold("nightly-report")
	if out := succeeds(startService(s, argv).Process); out != "" {
		t.Errorf("skipped, and it prints %q", out)
	}
	byHand.Finish()
	if out := succeeds(startService(s, argv).Process); out != "report made\n" {
		t.Errorf("it prints %q", out)
	}
}

// systemd itself finds nothing to say about the units.
func TestSystemdUnitsVerify(t *testing.T) {
	t.Parallel()
	s := sandbox(t, "", "")
	units, err := filepath.Glob(filepath.Join(examples, "systemd", "*.[^m]*"))
	testkit.Must(t, err)
	argv := []string{testkit.Need(t, "systemd-analyze"), "verify", "--man=no"}
	place := strings.NewReplacer("/usr/bin/golock", testkit.Golock, "EnvironmentFile=/etc", "EnvironmentFile=-/etc")
	for _, unit := range append(units, filepath.Join(examples, "leader", "leader.service")) {
		text, err := os.ReadFile(unit)
		testkit.Must(t, err)
		all := place.Replace(string(text))
		for _, program := range []string{"make-report", "worker", "echo-server", "import", "payroll", "scheduler"} {
			all = strings.ReplaceAll(all, "/usr/local/bin/"+program, "/bin/true")
		}
		name := strings.Replace(filepath.Base(unit), "@.", "@1.", 1)
		s.Write(name, all)
		argv = append(argv, s.Path(name))
	}
	if len(argv) != 3+9 {
		t.Errorf("%d units, want 9", len(argv)-3)
	}
	if out := testkit.Output(t, "", argv...); out != "" {
		t.Errorf("%q: %s", argv, out)
	}
}
