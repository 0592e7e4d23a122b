//go:build integration

package examples_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
	case "echo-server":
		err = echo()
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

// echo serves a connection to the socket that systemd has opened (sd_listen_fds(3)).
func echo() error {
	if pid, n := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"); pid != strconv.Itoa(os.Getpid()) || n != "1" {
		return fmt.Errorf("PID %d, but LISTEN_PID=%s LISTEN_FDS=%s", os.Getpid(), pid, n)
	}
	l, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	conn, err := l.Accept()
	if err == nil {
		_, err = io.Copy(conn, conn)
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
// executed. Descriptor 3 is the socket if there is one.
func startService(s *testkit.Sandbox, argv []string, socket *os.File, env ...string) *service {
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
	if socket != nil {
		vars += " LISTEN_FDS=1 LISTEN_FDNAMES=echo LISTEN_PID=$$"
	}
	c := s.Exec(argv...).Sh("export " + vars).Setenv(env...)
	if socket != nil {
		c.Extra = []*os.File{socket}
	}
	return &service{c.Begin(), conn}
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
// stopped directly.
func TestSystemdExec(t *testing.T) {
	t.Parallel()
	s := sandbox(t, "", "")
	p := startService(s, execStart(t, "worker.service"), nil)
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
	i := slices.Index(argv, "--ok-exit")
	if i < 0 {
		t.Fatalf("%s does not use --ok-exit", unit)
	}
	plain := slices.Delete(slices.Clone(argv), i, i+2)
	for _, c := range []struct {
		argv []string
		all  bool // TERM to every process, as KillMode=control-group does
		code int
	}{{argv, false, 0}, {plain, false, 143}, {argv, true, 0}, {plain, true, 143}} {
		s := sandbox(t, "", "")
		p := startService(s, c.argv, nil, "WITH_CHILD=1")
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
		p.Expects(c.code)
		s.NoneLeft()
		s.Lock("worker-limited", "-n", "--", "true").Run().Expect(t, 0)
	}
}

// A service that is stopped while it waits for its slot has started nothing and leaves the queue.
func TestSystemdStopWhileWaiting(t *testing.T) {
	t.Parallel()
	s := sandbox(t, "", "")
	argv := execStart(t, "worker-limited@.service")
	startService(s, argv, nil).ready()
	startService(s, argv, nil).ready()
	p := startService(s, argv, nil)
	s.AwaitWaiting("worker-limited", 1)
	p.Signal(syscall.SIGTERM)
	p.Expects(143)
	s.AwaitWaiting("worker-limited", 0)
	_ = p.notify.SetReadDeadline(time.Now())
	if n, err := p.notify.Read(make([]byte, 100)); err == nil {
		t.Errorf("it has sent %d bytes though it never started", n)
	}
}

// A socket that systemd opened is the command's, as descriptor 3 and under its PID.
func TestSystemdSocketActivation(t *testing.T) {
	t.Parallel()
	s := sandbox(t, "", "")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(testkit.Place(t, 0o755), "echo.sock"), Net: "unix"})
	testkit.Must(t, err)
	socket, err := l.File()
	testkit.Must(t, err)
	conn, err := net.Dial("unix", l.Addr().String())
	testkit.Must(t, err)
	defer conn.Close()
	p := startService(s, execStart(t, "echo.service"), socket)
	l.Close()
	socket.Close() // only the service has it now: the connection ends with the service
	_, err = io.WriteString(conn, "hello")
	testkit.Must(t, err)
	_ = conn.SetReadDeadline(time.Now().Add(testkit.Patience))
	reply := make([]byte, 5)
	if _, err := io.ReadFull(conn, reply); err != nil || string(reply) != "hello" {
		t.Errorf("the reply is %q, %v; stderr: %s", reply, err, p.Stderr())
	}
	conn.Close()
	succeeds(p.Process)
}

// The timer's job is skipped, with success and without a word, while the same job runs by hand.
func TestSystemdTimerJob(t *testing.T) {
	t.Parallel()
	s, argv := sandbox(t, "", ""), execStart(t, "nightly-report.service")
	byHand := s.Lock("nightly-report", "--", "sh", "-c", "echo in; read out").Start()
	byHand.Expect("in")
	if out := succeeds(startService(s, argv, nil).Process); out != "" {
		t.Errorf("skipped, and it prints %q", out)
	}
	byHand.Finish()
	if out := succeeds(startService(s, argv, nil).Process); out != "report made\n" {
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
		for _, program := range []string{"make-report", "worker", "echo-server", "import", "scheduler"} {
			all = strings.ReplaceAll(all, "/usr/local/bin/"+program, "/bin/true")
		}
		name := strings.Replace(filepath.Base(unit), "@.", "@1.", 1)
		s.Write(name, all)
		argv = append(argv, s.Path(name))
	}
	if len(argv) != 3+8 {
		t.Errorf("%d units, want 8", len(argv)-3)
	}
	if out := testkit.Output(t, "", argv...); out != "" {
		t.Errorf("%q: %s", argv, out)
	}
}
