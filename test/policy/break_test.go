//go:build integration

package policy_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

const (
	stubborn = `trap "" TERM; echo $$ >pid; while :; do sleep 0.5; done`
	sleeps   = `echo $$ >pid; exec sleep 300`
)

// A command that ignores the stop signal is killed, and break returns when it is dead. On a networked
// store the holder is notified at once, not at its next renewal, and where the loss of a slot is only
// warned of, an eviction still ends the command.
func TestBreakStubborn(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		flags := []string{"--kill-after", "0.5"}
		if !w.IsLocal() {
			flags = append(flags, "--on-lost", "warn", "--ttl", "30m") // the next renewal is later than any patience
		}
		holder := w.sh(stubborn, flags...)
		pid := w.AwaitPID("pid")
		w.breaks("--name", "job")
		w.dead(pid)
		holder.Expects(79, `golock: lock "job": the slot was taken back: evicted by user root (golock break, pid `, "; the command was stopped")
		w.IsFree()
	})
}

// A golock that is stopped cannot stop its command. Locally it is continued; on
// a networked store its lease ends.
func TestBreakStopped(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		flag := "--ttl=2s"
		if w.IsLocal() {
			flag = "--max=1" // as without
		}
		holder := w.sh(sleeps, flag)
		pid := w.AwaitPID("pid")
		holder.Signal(syscall.SIGSTOP)
		w.breaks("--name", "job")
		w.dead(pid)
		w.Signal(holder.PID, syscall.SIGCONT) // it may have ended
		holder.Expects(79)
	})
}

// A waiter that is stopped is evicted all the same.
func TestBreakStoppedWaiter(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.sh(sleeps)
		w.AwaitFile("pid")
		waiter := w.Job("--", "touch", "ran").Begin()
		w.AwaitWaiters(waiter.PID)
		waiter.Signal(syscall.SIGSTOP)
		w.breaks("--id", w.List("job")[1].ID)
		w.Signal(waiter.PID, syscall.SIGCONT) // it may have ended
		waiter.Expects(75, `lock "job": the place in the queue is lost: evicted by user root`)
	})
}

// break --dead kills what a killed golock has left running, in any session. Processes that only have the
// lock file open, or were children without it, are not killed.
func TestBreakOrphan(t *testing.T) {
	t.Parallel()
	w := local(t)
	holder := w.sh(`
		setsid sh -c 'trap "" TERM HUP; echo $$ >far; exec sleep 300' &
		bash -c 'for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ $fd -lt 3 ] || eval "exec $fd>&-"; done
			echo $$ >stranger; exec sleep 300' &
		` + stubborn)
	pid, far, stranger := w.AwaitPID("pid"), w.AwaitPID("far"), w.AwaitPID("stranger")
	reader := w.Exec("sh", "-c", `for f in "$0"/job.*.lock; do exec 3<"$f"; done; echo $$ >reader; exec sleep 300`,
		w.Store[len("local://"):]).Begin()
	w.AwaitFile("reader")
	w.breaks("--name", "job", "--dead")
	if !w.Lives(pid) {
		t.Fatal("--dead has broken what a golock looks after")
	}
	holder.Signal(syscall.SIGKILL)
	w.Eventually("it is an orphan", func() bool { return w.List("job")[0].Orphaned })
	w.breaks("--name", "job", "--dead")
	w.dead(pid)
	w.dead(far)
	if !w.Lives(stranger) || !reader.Running() {
		t.Error("a stranger was killed")
	}
	reader.Signal(syscall.SIGKILL)
	w.IsFree()
}

// Linux before 5.3 has no pidfds, and some seccomp profiles refuse them: a break ends a run, what a
// killed golock has left, and what a golock has become, all the same.
func TestBreakWithoutPidfds(t *testing.T) {
	t.Parallel()
	for call, errno := range map[string]string{"pidfd_open": "ENOSYS", "pidfd_send_signal": "EPERM", "pidfd_open,pidfd_send_signal": "ENOSYS"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			w := local(t)
			breaks := func() testkit.Result {
				return w.Golock("break", "--store", w.Store, "job").
					By("strace", "-f", "-o", "/dev/null", "-e", "trace="+call, "-e", "inject="+call+":error="+errno).Run()
			}
			holder := w.sh(stubborn, "--kill-after", "0.1")
			pid := w.AwaitPID("pid")
			breaks().Expect(t, 0)
			w.dead(pid)
			holder.Expects(79, "evicted by user root")

			testkit.Must(t, os.Remove(w.Path("pid")))
			holder = w.sh(stubborn)
			pid = w.AwaitPID("pid")
			holder.Signal(syscall.SIGKILL)
			w.Eventually("it is an orphan", func() bool { return w.List("job")[0].Orphaned })
			breaks().Expect(t, 0)
			w.dead(pid)

			testkit.Must(t, os.Remove(w.Path("pid")))
			holder = w.sh(`trap "exit 3" TERM; echo $$ >pid; while :; do sleep 0.1; done`, "-F")
			w.AwaitPID("pid")
			holder.Signal(syscall.SIGSTOP)
			breaks().Expect(t, 0)
			holder.Expects(3)
			w.IsFree()
		})
	}
}

// A nested run is broken without the one around it, and the one around with it.
func TestBreakNested(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		inner := testkit.Golock + " run --store '" + w.Store + `' --name inner -- sh -c "echo \$\$ >pid; exec sleep 300"`
		outer := w.sh(inner + "; echo $? >code; exit 4")
		w.AwaitFile("pid")
		w.breaks("--name", "inner")
		outer.Expects(4, "the slot was taken back")
		if code := w.AwaitFile("code"); code != "79" {
			t.Errorf("the inner run has ended with %s", code)
		}

		testkit.Must(t, os.Remove(w.Path("pid")))
		outer = w.sh("exec " + inner)
		pid := w.AwaitPID("pid")
		w.breaks("--name", "job")
		outer.Expects(79)
		w.dead(pid)
		w.Lock("inner", "-n", "--", "true").Run().Expect(t, 0)
	})
}

// A golock that became its command: the command gets TERM. One that ignores it
// is killed in the end, though no golock is there to do it.
// Slow: golock break gives a bare command 10 s.
func TestBreakExec(t *testing.T) {
	t.Parallel()
	for end, script := range map[syscall.Signal]string{
		0:               `trap "exit 3" TERM; echo $$ >pid; while :; do sleep 0.1; done`,
		syscall.SIGKILL: stubborn,
	} {
		t.Run(end.String(), func(t *testing.T) {
			t.Parallel()
			w := local(t)
			holder := w.sh(script, "-F")
			w.AwaitFile("pid")
			w.breaks("--name", "job")
			if r := holder.Wait(); r.Signal != end || end == 0 && r.Code != 3 {
				t.Errorf("the command: %v", r)
			}
			w.IsFree()
		})
	}
}

// A user who may not signal the holder gets 69, and the eviction stays recorded: golock obeys it when
// another user sends TERM.
func TestBreakOtherUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() // below one that only its owner may enter
	testkit.Must(t, errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777)))
	w := &world{testkit.New(t, "local://"+dir)}
	holder := w.sh(sleeps)
	pid := w.AwaitPID("pid")
	other := w.Golock("break", "--store", w.Store, "--name", "job").As(65534)
	other.Dir = "/"
	other.Run().Expect(t, 69, `golock: "job": pid `, "cannot be signalled: it belongs to another user")
	if !w.Lives(pid) {
		t.Fatal("the command is dead")
	}
	w.Job("-n", "--", "true").Run().Expect(t, 75, "evicted by u") // user nobody, or its number
	holder.Signal(syscall.SIGTERM)
	holder.Expects(79, "evicted by u")
}

// A holder in another pid namespace cannot be signalled.
func TestBreakOtherContainer(t *testing.T) {
	t.Parallel()
	w := local(t)
	w.Job("--", "sh", "-c", "echo in >in; exec sleep 300").
		By("unshare", "--pid", "--fork", "--kill-child", "--mount-proc").Begin()
	w.AwaitFile("in")
	w.tryBreak("--name", "job").Expect(t, 69, "another container")
}

// A store that can be read but not written: 69 after a while.
// Slow: it tries for 10 s.
func TestBreakOfWhatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := sqltest.Postgres(t)
	database := server.NewDatabase(t)
	w := &world{testkit.New(t, server.URL(database))}
	w.sh(sleeps)
	w.AwaitFile("pid")
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = server.TryExec(database, "BEGIN;SELECT 1 FROM golock WHERE entry_id='' FOR UPDATE;SELECT pg_sleep(300)")
	}()
	const sleeper = " FROM pg_stat_activity WHERE datname=current_database() AND wait_event='PgSleep'"
	w.Eventually("the rows are locked", func() bool { return len(server.Exec(t, database, "SELECT pid"+sleeper)) == 1 })
	w.tryBreak("--name", "job").Expect(t, 69, "cannot be reached")
	server.Exec(t, database, "SELECT pg_terminate_backend(pid)"+sleeper)
	<-over
}

// The new command starts when the old one is dead, also if that takes KILL.
func TestReplaceStubborn(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		old := w.sh(stubborn, "--replace", "running", "--kill-after", "0.5")
		pid := w.AwaitPID("pid")
		next := w.sh(fmt.Sprintf("! kill -0 %d", pid), "--replace", "running")
		old.Expects(79, `golock: lock "job": the slot was taken back: evicted by `, "; the command was stopped\n")
		next.Expects(0, "replaced pid "+strconv.Itoa(old.PID))
	})
}
