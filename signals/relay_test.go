package signals

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

// The relay takes over the signals of its process, so each test runs in a process of its own: this
// binary again, at one function of children.
func TestMain(m *testing.M) {
	if child, ok := children[os.Getenv("LOCKTEST_SIGNALS_CHILD")]; ok {
		child()
		os.Exit(0)
	}
	testkit.SetDefaults()
	os.Exit(m.Run())
}

var children = map[string]func(){
	"order": childOrder, "burst": childBurst, "wake": childWake, "pipe": childPipe, "ignored": childIgnored, "blocked": childBlocked,
	"stay": childStay, "yield": childYield, "suspend": childSuspend,
	"others": childOthers, "libraries": childLibraries, "passed on": childPassedOn,
	"die of HUP":  func() { dieOf(unix.SIGHUP) },
	"die of QUIT": func() { dieOf(unix.SIGQUIT) },
	"die of KILL": func() { dieOf(unix.SIGKILL) },
	"die of SEGV": func() { dieOf(unix.SIGSEGV) },
	"die of 32":   func() { dieOf(32) },
	"die of 34":   func() { dieOf(34) },
	"die of 64":   func() { dieOf(64) },
	"stop":        func() { StopJob(func() bool { return true }) },
	"stop, taken back": func() {
		StopJob(func() bool {
			raise(unix.SIGCONT)
			return true
		})
	},
	"stop, not any more": func() { StopJob(func() bool { return false }) },
}

func child(t *testing.T, name string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LOCKTEST_SIGNALS_CHILD="+name)
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// A job that was continued after the decision to stop does not stop.
func TestStopJob(t *testing.T) {
	for name, stops := range map[string]bool{"stop": true, "stop, taken back": false, "stop, not any more": false} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "LOCKTEST_SIGNALS_CHILD="+name)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // this test, in another group, could continue it
		testkit.Must(t, cmd.Start())
		var status syscall.WaitStatus
		_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err != nil || status.Stopped() != stops {
			t.Errorf("%s: status %v, %v", name, status, err)
		}
		if status.Stopped() {
			_ = cmd.Process.Signal(unix.SIGCONT)
			_ = cmd.Wait()
		}
	}
}

// A process dies of a signal that it has caught, that its caller ignored, or that no handler can catch,
// and leaves no core.
func TestDieOf(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{
		"die of HUP": unix.SIGHUP, "die of QUIT": unix.SIGQUIT, "die of KILL": unix.SIGKILL, "die of SEGV": unix.SIGSEGV,
		"die of 32": 32, "die of 34": 34, "die of 64": 64,
	} {
		cmd := exec.Command("/bin/sh", "-c", `ulimit -c unlimited; trap '' HUP QUIT; exec "$0"`, os.Args[0])
		cmd.Env, cmd.Dir = append(os.Environ(), "LOCKTEST_SIGNALS_CHILD="+name), t.TempDir()
		_ = cmd.Run()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != sig || status.CoreDump() {
			t.Errorf("%s: %v", name, cmd.ProcessState)
		}
	}
}

func dieOf(sig syscall.Signal) {
	start()
	DieOf(sig)
}

// A process stops also while something that it watches is readable.
func TestSuspend(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LOCKTEST_SIGNALS_CHILD=suspend")
	testkit.Must(t, cmd.Start())
	defer time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Errorf("status %v, %v", status, err)
	}
	_ = cmd.Process.Signal(unix.SIGCONT)
	_ = cmd.Wait()
}

func childSuspend() {
	r := start()
	var pipe [2]int
	_ = unix.Pipe(pipe[:])
	_, _ = unix.Write(pipe[1], []byte{1})
	r.Watch(pipe[0])
	r.Suspend()
}

func TestEverySignalArrivesInOrder(t *testing.T) { child(t, "order") }
func TestNothingIsLostInABurst(t *testing.T)     { child(t, "burst") }
func TestWakeAndTimeout(t *testing.T)            { child(t, "wake") }
func TestBrokenPipeIsForgotten(t *testing.T)     { child(t, "pipe") }
func TestIgnoredStaysIgnored(t *testing.T)       { child(t, "ignored") }
func TestBlockedIsHeardAndHandedOn(t *testing.T) { child(t, "blocked") }
func TestYieldLosesNothing(t *testing.T)         { child(t, "yield") }
func TestOthersAreHeard(t *testing.T)            { child(t, "others") }
func TestLibrariesSignals(t *testing.T)          { child(t, "libraries") }
func TestIgnoredIsPassedOn(t *testing.T)         { child(t, "passed on") }
func TestStaysInItsThread(t *testing.T)          { child(t, "stay") }

func say(words ...string) { os.Stdout.WriteString(strings.Join(words, " ") + "\n") }

func start() *Relay {
	r, err := NewRelay(false)
	if err != nil {
		say(err.Error())
	}
	r.Catch()
	return r
}

func raise(sig syscall.Signal) { _ = unix.Kill(unix.Getpid(), sig) }

func childOrder() {
	r := start()
	list := append(raisable(), jobControl()...)
	for sig := syscall.Signal(rtMin + 1); sig <= rtMax; sig++ {
		list = append(list, sig)
	}
	for range 20 {
		for _, sig := range list {
			raise(sig)
			if got, ok := r.Next(5 * time.Second); got != sig || !ok {
				say("sent", Name(sig), "got", Name(got))
			}
		}
	}
}

// Real-time signals queue in the kernel: each one counts.
func childBurst() {
	r := start()
	const n = 300
	for range n {
		raise(rtMin + 5)
	}
	want := n
	if merges {
		want = 1
	}
	for i := range want {
		if got, ok := r.Next(5 * time.Second); got != rtMin+5 || !ok {
			say("signal", Name(got), "as number", string(rune('0'+i%10)))
			return
		}
	}
}

func childWake() {
	r := start()
	if _, ok := r.Next(0); ok {
		say("something came although nothing was sent")
	}
	began := time.Now()
	if _, ok := r.Next(30 * time.Millisecond); ok || time.Since(began) < 30*time.Millisecond {
		say("timeout after", time.Since(began).String())
	}
	// The kernel counts seconds in 32 bits on some machines.
	for _, timeout := range []time.Duration{-1, math.MaxInt64, time.Second << 32} {
		go func() {
			time.Sleep(10 * time.Millisecond)
			r.Wake()
		}()
		if sig, ok := r.Next(timeout); sig != 0 || !ok {
			say("with timeout", timeout.String(), "woken by", Name(sig), "or at once")
		}
	}
}

func childPipe() {
	r := start()
	var p [2]int
	_ = unix.Pipe(p[:])
	unix.Close(p[0])
	if _, err := unix.Write(p[1], []byte("x")); err != unix.EPIPE {
		say("write to a broken pipe: no EPIPE")
	}
	if sig, ok := r.Next(20 * time.Millisecond); ok {
		say("came through:", Name(sig))
	}
}

// nextButCHLD gives the next signal that is not of a child.
func nextButCHLD(r *Relay) syscall.Signal {
	for {
		if sig, ok := r.Next(5 * time.Second); sig != unix.SIGCHLD || !ok {
			return sig
		}
	}
}

// What another process sends comes through, also where this process may cause such a signal itself.
func childOthers() {
	r := start()
	list := []string{"XCPU", "XFSZ", "SEGV"}
	if !merges { // os/signal does not say who sent it
		list = append(list, "PIPE", "PROF")
	}
	for _, name := range list {
		if out, err := exec.Command("/bin/kill", "-"+name, strconv.Itoa(os.Getpid())).CombinedOutput(); err != nil {
			say(err.Error(), string(out))
		}
		if sig := nextButCHLD(r); Name(sig) != name {
			say("sent", name, "got", Name(sig))
		}
	}
}

// The signals of the C libraries do nothing, and a child has their default action.
func childLibraries() {
	r := start()
	for sig := syscall.Signal(32); sig <= 34; sig++ {
		raise(sig)
		if got, ok := r.Next(20 * time.Millisecond); ok {
			say("sent", Name(sig), "got", Name(got))
		}
	}
	for sig := syscall.Signal(32); sig <= 34; sig++ {
		r.AsCaller(func() {
			err := exec.Command("/bin/sh", "-c", fmt.Sprintf("kill -%d $$", int(sig))).Run()
			if exit, ok := err.(*exec.ExitError); !ok || exit.Sys().(syscall.WaitStatus).Signal() != sig {
				say("a child:", fmt.Sprint(err))
			}
		})
	}
}

// A signal that the caller ignored is heard after CatchIgnored, and ignored in a child.
func childPassedOn() {
	if os.Getenv("LOCKTEST_SIGNALS_STEP") == "" {
		cmd := exec.Command("/bin/sh", "-c", `trap '' HUP INT; LOCKTEST_SIGNALS_STEP=2 exec "$0"`, os.Args[0])
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		_ = cmd.Run()
		return
	}
	r := start()
	raise(unix.SIGINT)
	r.CatchIgnored()
	for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT} {
		raise(sig)
		if got := nextButCHLD(r); got != sig || !r.Ignored(sig) {
			say("sent", Name(sig), "got", Name(got))
		}
		r.AsCaller(func() {
			if err := exec.Command("/bin/sh", "-c", "kill -"+Name(sig)+" $$").Run(); err != nil {
				say("a child:", err.Error())
			}
		})
		raise(sig)
		if got := nextButCHLD(r); got != sig {
			say("after a child: sent", Name(sig), "got", Name(got))
		}
	}
	r.Yield() // the process was to become its command, but the command cannot be executed
	r.AsCaller(func() {})
	raise(unix.SIGHUP)
	if got := nextButCHLD(r); got != unix.SIGHUP {
		say("after a command that could not be executed: got", Name(got))
	}
}

func childIgnored() {
	if os.Getenv("LOCKTEST_SIGNALS_STEP") == "" {
		cmd := exec.Command("/bin/sh", "-c", `trap '' HUP TSTP; LOCKTEST_SIGNALS_STEP=2 exec "$0"`, os.Args[0])
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		_ = cmd.Run()
		return
	}
	r := start()
	raise(unix.SIGHUP)
	raise(unix.SIGTSTP)
	raise(unix.SIGUSR1)
	if sig, _ := r.Next(5 * time.Second); sig != unix.SIGUSR1 {
		say("first came", Name(sig))
	}
}

// A signal that the caller had blocked reaches golock, and is blocked in a process that AsCaller
// starts.
func childBlocked() {
	mask := uint64(1 << (unix.SIGUSR2 - 1))
	if os.Getenv("LOCKTEST_SIGNALS_STEP") == "" {
		sigprocmask(unix.SIG_BLOCK, &mask, nil)
		_ = syscall.Exec(os.Args[0], os.Args, append(os.Environ(), "LOCKTEST_SIGNALS_STEP=2"))
	}
	r := start()
	raise(unix.SIGUSR2)
	if sig, ok := r.Next(5 * time.Second); sig != unix.SIGUSR2 || !ok {
		say("got", Name(sig))
	}
	r.AsCaller(func() {
		text, _ := os.ReadFile("/proc/thread-self/status")
		if !slices.Contains(strings.Split(string(text), "\n"), "SigBlk:\t0000000000000800") {
			say("not blocked for the command:", string(text))
		}
	})
	raise(unix.SIGUSR2)
	if sig, ok := r.Next(5 * time.Second); sig != unix.SIGUSR2 || !ok {
		say("after AsCaller: got", Name(sig))
	}
}

// raisable are signals that are passed on, also from this process itself.
func raisable() []syscall.Signal {
	return []syscall.Signal{
		unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
		unix.SIGABRT, unix.SIGSTKFLT, unix.SIGVTALRM, unix.SIGIO, unix.SIGPWR,
	}
}

// Next gives after Yield what came before it.
func childYield() {
	r := start()
	runtime.LockOSThread()
	for _, sig := range raisable() {
		_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig) // the handler has run when this returns
	}
	r.Yield()
	var got []syscall.Signal
	for sig, ok := r.Next(0); ok; sig, ok = r.Next(0) {
		got = append(got, sig)
	}
	if len(got) != len(raisable()) {
		say(fmt.Sprint(got))
	}
}

func childStay() {
	Stay()
	first := unix.Gettid()
	for range runtime.NumCPU() {
		go func() {
			for {
				runtime.Gosched()
			}
		}()
	}
	for range 1000 {
		time.Sleep(time.Microsecond) // a goroutine that is not locked may wake up in another thread
		if now := unix.Gettid(); now != first {
			fmt.Printf("thread %d, then %d\n", first, now)
			return
		}
	}
}

// A watched descriptor makes Next return for as long as it is readable, and
// signals come before it.
func TestWatch(t *testing.T) {
	r, err := NewRelay(false)
	testkit.Must(t, err)
	var pipe [2]int
	testkit.Must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	r.Watch(pipe[0])
	if sig, ok := r.Next(0); ok {
		t.Errorf("nothing is there, and Next gives %v", sig)
	}
	_, err = unix.Write(pipe[1], []byte{7})
	testkit.Must(t, err)
	for _, timeout := range []time.Duration{0, time.Second, -1} {
		if sig, ok := r.Next(timeout); !ok || sig != 0 {
			t.Errorf("with timeout %v Next gives %v, %v, want a wake-up", timeout, sig, ok)
		}
	}
	_, err = unix.Write(r.write, []byte{byte(unix.SIGUSR1)})
	testkit.Must(t, err)
	if sig, ok := r.Next(-1); !ok || sig != unix.SIGUSR1 {
		t.Errorf("Next gives %v, %v, want USR1", sig, ok)
	}
	r.Unwatch(pipe[0])
	if sig, ok := r.Next(time.Millisecond); ok {
		t.Errorf("not watched any more, and Next gives %v", sig)
	}
	for _, fd := range []int{pipe[0], pipe[1], r.read, r.write} {
		unix.Close(fd)
	}
}

// WakeAt does not take a time whose seconds have more than 32 bits for a time in the past.
func TestWakeAtInCenturies(t *testing.T) {
	r, err := NewRelay(false)
	testkit.Must(t, err)
	for at, want := range map[int64]bool{int64(time.Second<<32 + 1): false, 1: true} {
		r.WakeAt(at)
		if sig, ok := r.Next(100 * time.Millisecond); ok != want || sig != 0 {
			t.Errorf("for %v: woken %v by %v, want %v", time.Duration(at), ok, sig, want)
		}
	}
}

// After the kernel has refused to set the timer once, WakeAt sets it again. Otherwise the caller of
// Next would sleep for ever.
func TestWakeAtRefusedOnce(t *testing.T) {
	r, err := NewRelay(false)
	testkit.Must(t, err)
	timer := r.timer
	r.timer = -1
	r.WakeAt(1)
	r.timer = timer
	for range 2 { // the first Next returns so that WakeAt is called again, the second one because of the timer
		if sig, ok := r.Next(100 * time.Millisecond); !ok || sig != 0 {
			t.Errorf("woken %v by %v", ok, sig)
		}
		r.WakeAt(1)
	}
}
