package shell_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/redis/redistest"
)

// job is a run on a Redis server of its own whose command does what it is told
// through a FIFO, line by line, and prints each line's exit code.
type job struct {
	*proc
	server *redistest.Server
	orders *os.File
}

func startJob(t *testing.T, flags ...string) *job {
	t.Helper()
	j := &job{server: redistest.Start(t)}
	w := &world{TB: t, shell: "/bin/sh", dir: t.TempDir(), leased: true}
	w.env = []string{"PATH=" + filepath.Dir(golock) + ":/usr/bin:/bin", "GOLOCK_STORE=" + j.server.SocketURL("quarantine=0"), "LC_ALL=C"}
	fifo := filepath.Join(w.dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if j.orders, err = os.OpenFile(fifo, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.orders.Close() })
	// What it asks with has no store's password, nor anything else of the kind.
	command := `unset GOLOCK_STORE; echo ready; while read -r line; do eval "$line"; echo "$line: $?"; done <fifo`
	j.proc = w.start(append(append([]string{"golock", "run", "--name", "job"}, flags...), "--", "sh", "-c", command)...)
	j.line()
	return j
}

// tell has the job do something.
func (j *job) tell(line string) {
	j.w.Helper()
	if _, err := j.orders.WriteString(line + "\n"); err != nil {
		j.w.Fatal(err)
	}
}

// does has the job do something that comes to an exit code.
func (j *job) does(line string) string {
	j.w.Helper()
	before := len(text(j.out))
	j.tell(line)
	j.w.await("an answer to "+line, func() bool { return strings.HasSuffix(text(j.out)[before:], "\n") })
	return strings.TrimSpace(strings.TrimPrefix(text(j.out)[before:], line+": "))
}

func (j *job) comes(line, want string) {
	j.w.Helper()
	if got := j.does(line); got != want {
		j.w.Errorf("%s comes to %s, want %s; stderr %q", line, got, want, text(j.err))
	}
}

// forget takes the job's entry out of the store, as somebody who gave the slot
// away.
func (j *job) forget() {
	j.w.Helper()
	key, entry, _ := strings.Cut(j.w.ids("job", "holding")[0], "-")
	j.server.Do("ZREM", "golock:{"+key+"}:h", entry)
	j.server.Do("ZADD", "golock:{"+key+"}:g", time.Now().UnixMilli(), entry)
}

// The golock of the run asks the store: with it, and while that is out of reach
// nothing can be said.
func TestHeldThroughAnOutage(t *testing.T) {
	t.Parallel()
	j := startJob(t)
	j.comes("golock held", "0")
	j.comes("golock run --store local://$PWD/locks --name x -- golock held", "0")
	j.server.Stop()
	j.comes("golock held", "69")
	j.server.Continue()
	j.w.await("it is held again", func() bool { return j.does("golock held") == "0" })
	j.tell("exit 3")
	j.ends(3)
}

// A command whose slot is lost hears of it, and is stopped at once, not at the
// next renewal.
func TestHeldOfALostSlot(t *testing.T) {
	t.Parallel()
	j := startJob(t, "--ttl", "600", "--kill-after", "1")
	j.comes("golock held", "0")
	j.comes("trap '' TERM", "0")
	j.forget()
	began := time.Now()
	j.comes("golock held", "79")
	j.ends(79)
	if d := time.Since(began); d > time.Minute {
		t.Errorf("stopped after %v", d)
	}
}

// With --on-lost warn it goes on, and hears the same again.
func TestHeldOfALostSlotThatOnlyWarns(t *testing.T) {
	t.Parallel()
	j := startJob(t, "--ttl", "600", "--on-lost", "warn")
	j.forget()
	j.comes("golock held", "79")
	j.comes("golock held", "79")
	j.tell("exit 3")
	j.ends(3)
}

// Only its own golock may give the slot of a command back: also who can ask
// nobody but the store, as on another machine, is refused.
func TestReleaseOfARunFromElsewhere(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root, to be somebody else")
	}
	_ = os.Chmod(filepath.Dir(golock), 0o755)
	j := startJob(t)
	id := j.w.ids("job", "holding")[0]
	j.w.start("setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups", golock, "release", "--store", j.server.URL("quarantine=0"), id).ends(64)
	j.comes("golock held", "0")
	j.tell("exit 3")
	j.ends(3)
}

// An ID that nobody reads is that of no slot: there would be nobody to give it
// back.
func TestAcquireWithoutAReader(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w *world) {
		for _, whom := range []string{"none", strconv.Itoa(os.Getpid())} {
			if whom == "none" && !w.leased {
				continue
			}
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			read.Close()
			cmd := exec.Command(golock, "acquire", "--name", "unread", "--for", whom)
			cmd.Dir, cmd.Env, cmd.Stdout = w.dir, w.env, write
			out := cmd.Run()
			write.Close()
			if cmd.ProcessState.ExitCode() != 70 {
				w.Errorf("--for %s ends with %v, want 70", whom, out)
			}
			w.await("the slot is free", func() bool { return len(w.ids("unread", "holding")) == 0 })
		}
	})
}

// Another user is told that nobody answers.
func TestHeldAsAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root, to be somebody else")
	}
	_ = os.Chmod(filepath.Dir(golock), 0o755)
	j := startJob(t)
	j.comes("setpriv --reuid 12345 --regid 12345 --clear-groups golock held", "79")
	j.comes("golock held", "0")
	if s := text(j.err); s != "" {
		t.Errorf("said %q", s)
	}
}
