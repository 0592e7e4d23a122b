package held

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/test/testkit"
)

const id = "0123456789abcdef0123456789abcdef-0123456789abcdef0123456789abcdef"

// The test binary is also the other user.
func TestMain(m *testing.M) {
	if dir, isAsker := os.LookupEnv("LOCKTEST_HELD_ASK"); isAsker {
		if err := ask(dir, Confirm); err != ErrNobody {
			println("asked as another user:", fmt.Sprint(err))
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func ask(dir string, q Question) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return Ask(ctx, dir, id, q)
}

func listen(t *testing.T, dir string, answer func(context.Context, Question) error) *Listener {
	t.Helper()
	l, err := Listen(dir, id, answer, func(fault error) { t.Error(fault) })
	testkit.Must(t, err)
	return l
}

func yesTo(context.Context, Question) error { return nil }

// directory is one whose path is short enough for a socket.
func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "held")
	testkit.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestAnswers(t *testing.T) {
	dir := directory(t)
	if err := ask(dir, Confirm); err != ErrNobody {
		t.Fatalf("nobody there: %v", err)
	}
	if err := ask(dir+"/n", Confirm); err != ErrNobody {
		t.Fatalf("no directory: %v", err)
	}
	answers := map[Question]error{
		"held": nil, "lost": locks.ErrLost, "evicted": fmt.Errorf("by a test: %w", locks.ErrLost),
		"refused": ErrRefused, "nobody": ErrNobody, "unknown": errors.New("the store is out"),
	}
	for _, place := range []string{dir, "", dir + "/n"} { // in the last two there is no file
		l, err := Listen(place, id, func(_ context.Context, q Question) error { return answers[q] }, func(fault error) { t.Error(fault) })
		testkit.Must(t, err)
		for q, answer := range answers {
			want := answer
			if errors.Is(answer, locks.ErrLost) {
				want = locks.ErrLost
			}
			if err := ask(dir, q); fmt.Sprint(err) != fmt.Sprint(want) {
				t.Errorf("%q, %s: %v, want %v", place, q, err, want)
			}
		}
		if pid := Process(dir, id); pid != os.Getpid() {
			t.Errorf("%q: answered by process %d", place, pid)
		}
		l.Close()
		if err := ask(dir, Confirm); err != ErrNobody {
			t.Errorf("%q, closed: %v", place, err)
		}
		if pid := Process(dir, id); pid != 0 {
			t.Errorf("%q, closed: answered by process %d", place, pid)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A fault in a goroutine of the store, which comes as an answer, ends that answer only, and is reported as what
// it was.
func TestFaultOfTheStore(t *testing.T) {
	fault := &locks.PanicError{Value: "a fault made by the test"}
	answers := map[Question]error{"fault": fmt.Errorf("the store: %w", fault), Confirm: nil}
	failed := make(chan error, 2)
	l, err := Listen("", id, func(_ context.Context, q Question) error { return answers[q] }, func(f error) { failed <- f })
	testkit.Must(t, err)
	defer l.Close()
	if err := ask("", "fault"); err == nil || strings.Contains(err.Error(), fault.Error()) {
		t.Fatalf("a client is told %v", err)
	}
	if reported := <-failed; reported != error(fault) {
		t.Errorf("reported: %v, want %v", reported, fault)
	}
	testkit.Must(t, ask("", Confirm))
}

// Several ask at a time; one that says nothing is in nobody's way, also not in
// that of the end.
func TestSilentClient(t *testing.T) {
	fastest := time.Hour // of a few, as the machine may be busy; who is in the way costs each its limit
	for range 5 {
		dir := directory(t)
		l := listen(t, dir, yesTo)
		client, err := newSocket(socketPath(dir, id), unix.Connect)
		testkit.Must(t, err)
		began := time.Now()
		testkit.Must(t, ask(dir, Confirm))
		l.Close()
		fastest = min(fastest, time.Since(began))
		unix.Close(client)
	}
	if fastest >= ioLimit {
		t.Errorf("an answer and the end took %v at best", fastest)
	}
}

// A question that is being answered is answered before the end.
func TestCloseAnswersFirst(t *testing.T) {
	dir := directory(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	l := listen(t, dir, func(ctx context.Context, _ Question) error {
		close(asked)
		<-answer
		return ctx.Err()
	})
	got := make(chan error)
	go func() { got <- ask(dir, Confirm) }()
	<-asked
	closed := make(chan struct{})
	go func() {
		l.Close()
		close(closed)
	}()
	select {
	case <-closed:
		t.Fatal("closed before the answer")
	case <-time.After(20 * time.Millisecond):
	}
	close(answer)
	if err := <-got; fmt.Sprint(err) != context.Canceled.Error() {
		t.Errorf("answer %v", err)
	}
	<-closed
}

// Another user gets no answer even where the directory would let it in.
func TestOtherUser(t *testing.T) {
	testkit.NeedRoot(t)
	dir := directory(t)
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		testkit.Must(t, os.Chmod(d, 0o755))
	}
	for _, place := range []string{dir, ""} {
		l := listen(t, place, yesTo)
		defer l.Close()
		if place != "" {
			testkit.Must(t, os.Chmod(socketPath(dir, id), 0o666))
		}
		other := exec.Command("/proc/self/exe")
		other.Env = []string{"LOCKTEST_HELD_ASK=" + place}
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
		if out, err := other.CombinedOutput(); err != nil {
			t.Errorf("%q: %v: %s", place, err, out)
		}
	}
}

// Only sockets of ours that nobody listens on any more are removed.
func TestSweep(t *testing.T) {
	dir := filepath.Join(directory(t), "[") // no pattern; longer paths are too long for sockets
	testkit.Must(t, os.Mkdir(dir, 0o700))
	l := listen(t, dir, yesTo)
	defer l.Close()
	old := time.Now().Add(-time.Hour)
	killed := filepath.Join(dir, strings.Replace(id, "0", "f", 1)+suffix)
	for _, path := range []string{killed, filepath.Join(dir, "other.sock")} {
		fd, err := newSocket(path, unix.Bind)
		testkit.Must(t, err)
		unix.Close(fd)
	}
	count := func(olderThan time.Duration, want int) {
		t.Helper()
		if n, err := Sweep(dir, olderThan); n != want || err != nil {
			t.Errorf("Sweep = %d, %v, want %d", n, err, want)
		}
	}
	count(0, 0) // too young to be judged
	for _, path := range []string{killed, socketPath(dir, id), filepath.Join(dir, "other.sock")} {
		testkit.Must(t, os.Chtimes(path, old, old))
	}
	count(2*time.Hour, 0)
	count(0, 1)
	if err := ask(dir, Confirm); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "other.sock")); err != nil {
		t.Error(err)
	}
	if n, err := Sweep(dir+"/none", 0); n != 0 || err != nil {
		t.Errorf("no directory: %d, %v", n, err)
	}
}
