package held

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

const id = "0123456789abcdef0123456789abcdef-0123456789abcdef0123456789abcdef"

// The test binary is also the other user.
func TestMain(m *testing.M) {
	if dir := os.Getenv("LOCKTEST_HELD_ASK"); dir != "" {
		a, err := ask(dir, Still)
		if a != "" || err != ErrNobody {
			println("asked as another user:", string(a), err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func ask(dir string, q Question) (Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return Ask(ctx, dir, id, q)
}

func listen(t *testing.T, dir string, answer func(Question) (Answer, error)) *Listener {
	t.Helper()
	l, err := Listen(dir, id, answer)
	testkit.Must(t, err)
	return l
}

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
	if a, err := ask(dir, Still); err != ErrNobody {
		t.Fatalf("nobody there: %q, %v", a, err)
	}
	if a, err := ask(dir+"/n", Still); err != ErrNobody {
		t.Fatalf("no directory: %q, %v", a, err)
	}
	l := listen(t, dir, func(q Question) (Answer, error) {
		switch q {
		case Still:
			return Yes, nil
		case Release:
			return Unknown, errors.New("the store is out")
		}
		return Silence, nil
	})
	if a, err := ask(dir, Still); a != Yes || err != nil {
		t.Errorf("held: %q, %v", a, err)
	}
	if a, err := ask(dir, Release); a != Unknown || err == nil || err.Error() != "the store is out" {
		t.Errorf("release: %q, %v", a, err)
	}
	if a, err := ask(dir, "what is it?"); err != ErrNobody {
		t.Errorf("silence: %q, %v", a, err)
	}
	l.Close()
	if a, err := ask(dir, Still); err != ErrNobody {
		t.Errorf("closed: %q, %v", a, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Several ask at a time; one that says nothing is in nobody's way, also not in
// that of the end.
func TestSilentClient(t *testing.T) {
	dir := directory(t)
	l := listen(t, dir, func(Question) (Answer, error) { return Yes, nil })
	client, err := newSocket(socketPath(dir, id), unix.Connect)
	testkit.Must(t, err)
	defer unix.Close(client)
	began := time.Now()
	if a, err := ask(dir, Still); a != Yes {
		t.Fatalf("%q, %v", a, err)
	}
	l.Close()
	if d := time.Since(began); d > ioLimit/2 {
		t.Errorf("took %v", d)
	}
}

// A question that is being answered is answered before the end.
func TestCloseAnswersFirst(t *testing.T) {
	dir := directory(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	l := listen(t, dir, func(Question) (Answer, error) {
		close(asked)
		<-answer
		return No, nil
	})
	got := make(chan Answer)
	go func() {
		a, _ := ask(dir, Still)
		got <- a
	}()
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
	if a := <-got; a != No {
		t.Errorf("answer %q", a)
	}
	<-closed
}

// Another user gets no answer even where the directory would let it in.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root, to be somebody else")
	}
	dir := directory(t)
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		testkit.Must(t, os.Chmod(d, 0o755))
	}
	l := listen(t, dir, func(Question) (Answer, error) { return Yes, nil })
	defer l.Close()
	testkit.Must(t, os.Chmod(socketPath(dir, id), 0o666))
	other := exec.Command("/proc/self/exe")
	other.Env = []string{"LOCKTEST_HELD_ASK=" + dir}
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	if out, err := other.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Only sockets of ours that nobody listens on any more are removed.
func TestSweep(t *testing.T) {
	dir := directory(t)
	l := listen(t, dir, func(Question) (Answer, error) { return Yes, nil })
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
	if a, err := ask(dir, Still); a != Yes {
		t.Errorf("%q, %v", a, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "other.sock")); err != nil {
		t.Error(err)
	}
	if n, err := Sweep(dir+"/none", 0); n != 0 || err != nil {
		t.Errorf("no directory: %d, %v", n, err)
	}
}
