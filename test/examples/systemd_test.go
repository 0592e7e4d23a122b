//go:build integration

package examples_test

import (
	"errors"
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

	"golock/test/testkit"
)

// The services that the units start. The test binary plays them: play is its main function then.
func play(service string) int {
	switch service {
	case "make-report":
		fmt.Println("report made")
		return 0
	case "worker":
		// Says READY with what it knows of itself, has a child as servers do, and works until a signal ends it.
		conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: os.Getenv("NOTIFY_SOCKET"), Net: "unixgram"})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if os.Getenv("WITH_CHILD") != "" {
			if err := exec.Command(os.Args[0], "play", "idle").Start(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		fmt.Fprintf(conn, "READY=1\nSTATUS=pid %d, watchdog for %s, %s us", os.Getpid(), os.Getenv("WATCHDOG_PID"), os.Getenv("WATCHDOG_USEC"))
		fallthrough
	case "idle":
		time.Sleep(2 * testkit.Patience) // far longer than any test, but no process stays for ever if one fails
		return 1
	case "echo-server":
		// sd_listen_fds(3): the descriptors are for the process of that PID only.
		if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || os.Getenv("LISTEN_FDS") != "1" {
			fmt.Fprintf(os.Stderr, "PID %d, but LISTEN_PID=%s LISTEN_FDS=%s\n", os.Getpid(), os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"))
			return 1
		}
		l, err := net.FileListener(os.NewFile(3, "socket"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		conn, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer conn.Close()
		io.Copy(conn, conn)
		return 0
	}
	return 2
}

// execStart returns the command line of a unit, with the built golock and with the test binary as the service.
func execStart(t *testing.T, unit string) []string {
	t.Helper()
	for _, line := range lines(read(t, filepath.Join(examples, "systemd", unit))) {
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
		return append(append([]string{golock}, argv[1:i+1]...), self, "play", filepath.Base(argv[i+1]))
	}
	t.Fatalf("%s: no ExecStart", unit)
	return nil
}

// service is one unit run by the test in systemd's place.
type service struct {
	*command
	notify *net.UnixConn // what the service tells systemd
	alive  *os.File      // ends when no process of the service is left
}

// startService starts argv as systemd does: the PID that the variables name is the one that is executed. descriptor 3 is
// the socket if there is one.
func startService(t *testing.T, store string, argv []string, socket *os.File, env ...string) *service {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // t.TempDir may be too long for a socket's name
	testkit.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	address := &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"}
	conn, err := net.ListenUnixgram("unixgram", address)
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	raw, err := conn.SyscallConn()
	testkit.Must(t, err)
	var errOpt error
	if err := raw.Control(func(fd uintptr) {
		errOpt = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1)
	}); err != nil || errOpt != nil {
		t.Fatal(err, errOpt)
	}
	r, w, err := os.Pipe()
	testkit.Must(t, err)
	t.Cleanup(func() { r.Close() })

	vars := "NOTIFY_SOCKET='" + address.Name + "' WATCHDOG_USEC=30000000 WATCHDOG_PID=$$"
	if socket != nil {
		vars += " LISTEN_FDS=1 LISTEN_FDNAMES=echo LISTEN_PID=$$"
	}
	c := newCommand(t, store, "", append([]string{"sh", "-c", vars + ` exec "$@"`, "sh"}, argv...)...)
	c.Env = append(c.Env, env...)
	c.ExtraFiles = []*os.File{w}
	if socket != nil {
		c.ExtraFiles = []*os.File{socket, w}
	}
	c.start(t)
	w.Close()
	return &service{command: c, notify: conn, alive: r}
}

// ready waits for READY=1 and returns who has sent it, as the kernel says, with the message.
func (s *service) ready(t *testing.T) (pid int, message string) {
	t.Helper()
	b, oob := make([]byte, 4096), make([]byte, 4096)
	s.notify.SetReadDeadline(time.Now().Add(testkit.Patience))
	n, oobn, _, _, err := s.notify.ReadMsgUnix(b, oob)
	if err != nil {
		t.Fatalf("no READY from %q: %v\nstderr: %s", s.Args, err, &s.err)
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d control messages: %v", len(messages), err)
	}
	credentials, err := syscall.ParseUnixCredentials(&messages[0])
	testkit.Must(t, err)
	return int(credentials.Pid), string(b[:n])
}

// over waits until no process of the service is left.
func (s *service) over(t *testing.T) {
	t.Helper()
	s.alive.SetReadDeadline(time.Now().Add(testkit.Patience))
	if _, err := s.alive.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("processes of %q are left: %v", s.Args, err)
	}
}

func free(t *testing.T, store, name string) {
	t.Helper()
	mustRun(t, store, "", golock, "run", "-n", "--name", name, "--", "true")
	if s := mustRun(t, store, "", golock, "ls", "--json", name); strings.TrimSpace(s) != "[]" {
		t.Errorf("ls still shows %s", s)
	}
}

// With --exec the service is the main process: READY and the watchdog are its own, and it is stopped directly.
func TestSystemdExec(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	s := startService(t, store, execStart(t, "worker.service"), nil)
	pid, message := s.ready(t)
	main := s.Process.Pid
	if want := fmt.Sprintf("READY=1\nSTATUS=pid %d, watchdog for %[1]d, 30000000 us", main); pid != main || message != want {
		t.Errorf("PID %d said %q; want %d, %q", pid, message, main, want)
	}
	second := newCommand(t, store, "", golock, "run", "-n", "--name", "worker", "--", "true").start(t)
	if code := second.code(t); code != 75 {
		t.Errorf("a second worker: code %d, want 75", code)
	}
	testkit.Must(t, s.Process.Signal(syscall.SIGTERM))
	if code := s.code(t); code != 143 {
		t.Errorf("stopped: code %d, want 143 (death by TERM)\nstderr: %s", code, &s.err)
	}
	s.over(t)
	free(t, store, "worker")
}

// Without --exec golock is the main process: READY comes from its command, which is why the unit says NotifyAccess=all,
// and TERM to golock alone ends the command with all it has started.
func TestSystemdSupervisor(t *testing.T) {
	t.Parallel()
	unit := "worker-limited@.service"
	for _, line := range []string{"NotifyAccess=all", "KillMode=mixed"} {
		if !slices.Contains(lines(read(t, filepath.Join(examples, "systemd", unit))), line) {
			t.Errorf("%s does not say %s", unit, line)
		}
	}
	argv := execStart(t, unit)
	i := slices.Index(argv, "--ok-exit")
	if i < 0 {
		t.Fatalf("%s does not use --ok-exit", unit)
	}
	plain := slices.Delete(slices.Clone(argv), i, i+2)

	for _, tt := range []struct {
		name string
		argv []string
		all  bool // TERM to every process, as KillMode=control-group does
		code int
	}{
		{"as in the unit", argv, false, 0},
		{"without --ok-exit", plain, false, 143},
		{"KillMode=control-group", argv, true, 0},
		{"KillMode=control-group without --ok-exit", plain, true, 143},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := t.TempDir()
			s := startService(t, store, tt.argv, nil, "WITH_CHILD=1")
			pid, message := s.ready(t)
			if pid == s.Process.Pid || !strings.HasPrefix(message, fmt.Sprintf("READY=1\nSTATUS=pid %d,", pid)) {
				t.Errorf("PID %d said %q, golock is %d", pid, message, s.Process.Pid)
			}
			worker, err := os.FindProcess(pid) // that very process, also when it has ended
			testkit.Must(t, err)
			defer worker.Release()
			testkit.Must(t, s.Process.Signal(syscall.SIGTERM))
			if tt.all {
				_ = syscall.Kill(-pid, syscall.SIGTERM) // the worker leads a group, which its child is in
			}
			if code := s.code(t); code != tt.code {
				t.Errorf("stopped: code %d, want %d\nstderr: %s", code, tt.code, &s.err)
			}
			s.over(t)
			free(t, store, "worker-limited")
		})
	}
}

// A service that is stopped while it waits for its slot has started nothing and leaves the queue.
func TestSystemdStopWhileWaiting(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	holders := []*service{
		startService(t, store, execStart(t, "worker-limited@.service"), nil),
		startService(t, store, execStart(t, "worker-limited@.service"), nil),
	}
	for _, h := range holders {
		h.ready(t)
	}
	s := startService(t, store, execStart(t, "worker-limited@.service"), nil)
	waiters := func() int {
		return strings.Count(mustRun(t, store, "", golock, "ls", "--json", "worker-limited"), `"waiting"`)
	}
	testkit.Eventually(t, "the third in the queue", func() bool { return waiters() == 1 })
	testkit.Must(t, s.Process.Signal(syscall.SIGTERM))
	if code := s.code(t); code != 143 {
		t.Errorf("stopped while waiting: code %d, want 143", code)
	}
	s.over(t)
	if n := waiters(); n != 0 {
		t.Errorf("%d still in the queue", n)
	}
	s.notify.SetReadDeadline(time.Now())
	if n, err := s.notify.Read(make([]byte, 100)); err == nil {
		t.Errorf("it has sent %d bytes though it never started", n)
	}
}

// A socket that systemd opened is the command's, as descriptor 3 and under its PID.
func TestSystemdSocketActivation(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	dir, err := os.MkdirTemp("", "socket")
	testkit.Must(t, err)
	defer os.RemoveAll(dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "echo.sock"), Net: "unix"})
	testkit.Must(t, err)
	defer l.Close()
	socket, err := l.File()
	testkit.Must(t, err)
	defer socket.Close()
	s := startService(t, store, execStart(t, "echo.service"), socket)
	conn, err := net.Dial("unix", l.Addr().String())
	testkit.Must(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testkit.Patience))
	reply := make(chan string, 1)
	go func() {
		b := make([]byte, 5)
		_, err := io.ReadFull(conn, b)
		reply <- fmt.Sprint(string(b), err)
	}()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-reply:
		if got != "hello<nil>" {
			t.Errorf("the reply is %q", got)
		}
	case <-s.done:
		t.Errorf("the service ended without a reply; stderr: %s", &s.err)
	}
	conn.Close()
	if code := s.code(t); code != 0 || s.said() != "" {
		t.Errorf("code %d, stderr: %s", code, &s.err)
	}
	free(t, store, "echo")
}

// The timer's job is skipped, with success and without a word, while the same job runs by hand.
func TestSystemdTimerJob(t *testing.T) {
	t.Parallel()
	store, argv := t.TempDir(), execStart(t, "nightly-report.service")
	byHand := newCommand(t, store, "", golock, "run", "--name", "nightly-report", "--", "sh", "-c", "echo in; read out")
	stdin, err := byHand.StdinPipe()
	testkit.Must(t, err)
	byHand.Stdout = nil
	stdout, err := byHand.StdoutPipe()
	testkit.Must(t, err)
	byHand.start(t)
	_ = stdout.(*os.File).SetReadDeadline(time.Now().Add(testkit.Patience))
	if _, err := io.ReadFull(stdout, make([]byte, len("in\n"))); err != nil {
		t.Fatal(err)
	}
	skipped := startService(t, store, argv, nil)
	if code := skipped.code(t); code != 0 || skipped.out.Len() > 0 || skipped.said() != "" {
		t.Errorf("skipped: code %d, stdout %q, stderr %q; want 0 and nothing", code, &skipped.out, &skipped.err)
	}
	if _, err := io.WriteString(stdin, "out\n"); err != nil {
		t.Fatal(err)
	}
	if code := byHand.code(t); code != 0 {
		t.Fatalf("by hand: code %d", code)
	}
	ran := startService(t, store, argv, nil)
	if code := ran.code(t); code != 0 || ran.out.String() != "report made\n" || ran.said() != "" {
		t.Errorf("code %d, stdout %q, stderr %q", code, &ran.out, &ran.err)
	}
}

// systemd itself finds nothing to say about the units.
func TestSystemdUnitsVerify(t *testing.T) {
	t.Parallel()
	testkit.Need(t, "systemd-analyze")
	from, dir := filepath.Join(examples, "systemd"), t.TempDir()
	units, err := filepath.Glob(filepath.Join(from, "*.[^m]*"))
	testkit.Must(t, err)
	argv := []string{"systemd-analyze", "verify", "--man=no"}
	for _, unit := range append(units, filepath.Join(examples, "leader", "leader.service")) {
		text := strings.ReplaceAll(read(t, unit), "/usr/bin/golock", golock)
		text = strings.Replace(text, "EnvironmentFile=/etc", "EnvironmentFile=-/etc", 1)
		for _, program := range []string{"make-report", "worker", "echo-server", "import", "scheduler"} {
			text = strings.ReplaceAll(text, "/usr/local/bin/"+program, "/bin/true")
		}
		name := strings.Replace(filepath.Base(unit), "@.", "@1.", 1)
		write(t, filepath.Join(dir, name), 0o644, text)
		argv = append(argv, filepath.Join(dir, name))
	}
	if len(argv) != 3+8 {
		t.Errorf("%d units, want 8", len(argv)-3)
	}
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %v\n%s", argv, err, out)
	}
}
