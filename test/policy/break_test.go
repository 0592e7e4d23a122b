package policy_test

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golock/locks/sql/sqltest"
)

const stubborn = `trap "" TERM; echo $$ >pid; while :; do sleep 0.05; done`

// break is golock break, as a program to be started.
func (w *world) breaks(args ...string) *proc { return w.golock("break", args...) }

// A command that ignores the stop signal is killed, and break returns when it
// is dead.
func TestBreakStubborn(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		holder := w.run("job", "--kill-after", "0.5", "--", "sh", "-c", stubborn)
		pid := w.await("pid")
		w.breaks("--name", "job").expect(0)
		if alive(pid) {
			t.Error("break has returned, and the command lives")
		}
		holder.expect(79, "golock: the slot was taken back: evicted by user root (golock break, pid ")
		w.isFree("job")
	})
}

// The stop signal is the one of --signal, and nothing else.
func TestBreakSignal(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		holder := w.run("job", "--signal", "USR1", "--rewrite", "TERM:0", "--", "sh", "-c",
			`trap "echo term >term" TERM; trap "echo usr1 >usr1; exit 3" USR1; echo $$ >pid; while :; do sleep 0.01; done`)
		w.await("pid")
		w.breaks("--name", "job").expect(0)
		holder.expect(79)
		if w.await("usr1"); w.exists("term") {
			t.Error("the command got TERM")
		}
	})
}

// TERM from somebody else is passed on as ever.
func TestTermIsNoBreak(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		holder := w.run("job", "--", "sh", "-c", `trap "exit 5" TERM; echo $$ >pid; while :; do sleep 0.01; done`)
		w.await("pid")
		holder.signal(syscall.SIGTERM)
		holder.expect(5)
	})
}

// A golock that is stopped cannot stop its command. Locally it is continued; on
// a networked store its lease ends.
func TestBreakStopped(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		holder := w.run("job", ttl(w), "--", "sh", "-c", "echo $$ >pid; exec sleep 300")
		pid := w.await("pid")
		holder.signal(syscall.SIGSTOP)
		w.breaks("--name", "job").expect(0)
		if alive(pid) {
			t.Error("break has returned, and the command lives")
		}
		_ = holder.cmd.Process.Signal(syscall.SIGCONT) // it may have ended
		holder.expect(79)
	})
}

// A waiter that is stopped is evicted all the same.
func TestBreakStoppedWaiter(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.run("job", "--", "sh", "-c", "echo $$ >pid; exec sleep 300")
		w.await("pid")
		waiter := w.run("job", "--", "touch", "ran")
		w.waiting("job", 1)
		waiter.signal(syscall.SIGSTOP)
		w.breaks("--id", w.ls("job")[1].ID).expect(0)
		_ = waiter.cmd.Process.Signal(syscall.SIGCONT) // it may have ended
		waiter.expect(75, `the place in the queue of "job" is lost: evicted by user root`)
	})
}

// What a killed golock has left running, wherever it went, is killed; others
// who have the file open, or were its children, are not.
func TestBreakOrphan(t *testing.T) {
	w := local(t)
	holder := w.run("job", "--", "sh", "-c", `
		setsid sh -c 'trap "" TERM HUP; echo $$ >far; exec sleep 300' &
		bash -c 'for fd in /proc/$$/fd/1??; do eval "exec ${fd##*/}>&-"; done; echo $$ >stranger; exec sleep 300' &
		`+stubborn)
	pid, far, stranger := w.await("pid"), w.await("far"), w.await("stranger")
	defer exec.Command("kill", "-9", stranger).Run()
	reader := w.start("sh", "-c", `for f in store/job.*.lock; do exec 3<"$f"; done; echo $$ >reader; exec sleep 300`)
	readerPID := w.await("reader")
	w.breaks("--name", "job", "--dead").expect(0)
	if !alive(pid) {
		t.Fatal("--dead has broken what a golock looks after")
	}
	holder.signal(syscall.SIGKILL)
	w.eventually("it is an orphan", func() bool { return w.ls("job")[0].Orphaned })
	w.breaks("--name", "job", "--dead").expect(0)
	for _, dead := range []string{pid, far} {
		if alive(dead) {
			t.Errorf("%s lives", dead)
		}
	}
	for _, p := range []string{stranger, readerPID} {
		if !alive(p) {
			t.Error("a stranger was killed")
		}
	}
	reader.signal(syscall.SIGKILL)
	w.isFree("job")
}

// A nested run is broken without the one around it, and the one around with it.
func TestBreakNested(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		inner := golock + ` run --store $STORE --name inner -- sh -c "echo \$\$ >pid; exec sleep 300"`
		outer := w.run("outer", "--", "sh", "-c", inner+`; echo $? >code; exit 4`)
		w.await("pid")
		w.breaks("--name", "inner").expect(0)
		outer.expect(4, "the slot was taken back")
		if code := w.await("code"); code != "79" {
			t.Errorf("the inner run has ended with %s", code)
		}

		if err := os.Remove(w.path("pid")); err != nil {
			t.Fatal(err)
		}
		outer = w.run("outer", "--", "sh", "-c", "exec "+inner)
		pid := w.await("pid")
		w.breaks("--name", "outer").expect(0)
		outer.expect(79)
		if alive(pid) {
			t.Error("the inner command lives")
		}
		w.isFree("inner")
	})
}

// Runs of one name inside each other are broken together.
func TestBreakSameName(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		outer := w.run("job", "--max", "2", "--", golock, "run", "--store", w.url, "--name", "job", "--max", "2", "--", "sh", "-c", "echo $$ >pid; exec sleep 300")
		w.await("pid")
		w.breaks("--name", "job").expect(0)
		outer.expect(79)
		w.isFree("job")
	})
}

// A golock that became its command: the command gets TERM.
func TestBreakExec(t *testing.T) {
	w := local(t)
	holder := w.run("job", "-F", "--", "sh", "-c", `trap "exit 3" TERM; echo $$ >pid; while :; do sleep 0.01; done`)
	w.await("pid")
	w.breaks("--name", "job").expect(0)
	holder.expect(3)
	w.isFree("job")
}

// A command that ignores TERM is killed in the end, though no golock is there
// to do it.
func TestBreakExecStubborn(t *testing.T) {
	w := local(t)
	holder := w.run("job", "-F", "--", "sh", "-c", stubborn)
	w.await("pid")
	w.breaks("--name", "job").expect(0)
	if code := holder.code(); code != -1 {
		t.Errorf("code %d, want death by a signal", code)
	}
	w.isFree("job")
}

// Who may not signal the holder is told so, and the mark stays: the golock heeds
// it when somebody else sends it TERM.
func TestBreakOtherUser(t *testing.T) {
	w := &world{t: t, dir: "/tmp/golock-policy-" + strconv.Itoa(os.Getpid())}
	w.url = "local://" + w.dir + "/store"
	if err := os.Mkdir(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(w.dir) })
	if err := os.Mkdir(w.path("store"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(w.path("store"), 0o777); err != nil {
		t.Fatal(err)
	}
	holder := w.run("job", "--", "sh", "-c", "echo $$ >pid; exec sleep 300")
	pid := w.await("pid")
	nobody := w.start("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", golock, "break", "--store", w.url, "--name", "job")
	nobody.expect(69, `golock: "job": pid `, "cannot be told to go: it belongs to another user")
	if !alive(pid) {
		t.Fatal("the command is dead")
	}
	w.run("job", "-n", "--", "true").expect(75, "told to go by u") // user nobody, or its number
	holder.signal(syscall.SIGTERM)
	holder.expect(79, "evicted by u")
}

// A holder in another pid namespace cannot be told.
func TestBreakOtherContainer(t *testing.T) {
	w := local(t)
	holder := w.start("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", golock, "run", "--store", w.url, "--name", "job", "--", "sh", "-c", "echo in >in; exec sleep 300")
	w.await("in")
	w.breaks("--name", "job").expect(69, "another container")
	holder.signal(syscall.SIGKILL)
	holder.code()
}

// Where the loss of a slot is only warned of, an eviction still ends the
// command.
func TestBreakOnLostWarn(t *testing.T) {
	w := networked(t)
	holder := w.run("job", "--on-lost", "warn", "--kill-after", "0.3", "--", "sh", "-c", stubborn)
	pid := w.await("pid")
	w.breaks("--name", "job").expect(0)
	holder.expect(79, "the slot was taken back")
	if alive(pid) {
		t.Error("the command lives")
	}
}

// A lease that is renewed rarely: the holder hears of it at once.
func TestBreakIsHeardAtOnce(t *testing.T) {
	w := networked(t)
	holder := w.run("job", "--ttl", "10m", "--", "sh", "-c", "echo $$ >pid; exec sleep 300")
	w.await("pid")
	begin := time.Now()
	w.breaks("--name", "job").expect(0)
	holder.expect(79)
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A store that can be read but does not take the order: break tells so after a
// while.
func TestBreakOfWhatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := sqltest.Postgres(t)
	database := server.NewDatabase(t)
	w := &world{t: t, dir: t.TempDir(), url: server.URL(database)}
	w.run("job", "--", "sh", "-c", "echo $$ >pid; exec sleep 300")
	w.await("pid")
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = server.TryExec(database, "BEGIN;SELECT 1 FROM golock WHERE entry_id='' FOR UPDATE;SELECT pg_sleep(300)")
	}()
	const sleeper = " FROM pg_stat_activity WHERE datname=current_database() AND wait_event='PgSleep'"
	w.eventually("the rows are locked", func() bool { return len(server.Exec(t, database, "SELECT pid"+sleeper)) == 1 })
	w.breaks("--name", "job").expect(69, "cannot be reached")
	server.Exec(t, database, "SELECT pg_terminate_backend(pid)"+sleeper)
	<-over
	w.breaks("--name", "job").expect(0)
}
