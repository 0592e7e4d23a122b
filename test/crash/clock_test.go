//go:build integration

package crash_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/test/testkit"
)

// The wall clocks of two hosts are set while a run holds and another waits. The one goes on renewing,
// the other waiting, time limits stay the same, and so does the order. Each store has one of the steps, in
// the deep run both.
func TestWallClockOfAHostIsSet(t *testing.T) {
	t.Parallel()
	for i, name := range slices.Sorted(maps.Keys(leasedStores)) {
		url := leasedStores[name]
		for j, hours := range []int64{7, -31} {
			if !testkit.Covers(i, j, 2) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%+d h", name, hours), func(t *testing.T) {
				t.Parallel()
				w := leasing(t, url(t), 8*time.Second)
				holder, waiter := newWallClock(w, "--time-limit", "1h"), newWallClock(w, "--wait", "1h")
				r := row{world: w, holder: holder.golock()}
				w.awaitBegin(r.holder)
				r.queue = append(r.queue, waiter.golock())
				waiter.p.Says(" waiting")
				waiter.p.release()
				holder.set(hours)
				waiter.set(-hours)
				r.renewed()
				r.queue = append(r.queue, w.queued())
				r.served()
				holder.check(hours)
				waiter.check(-hours)
			})
		}
	}
}

// For how long somebody has held or waited is told by the clock that keeps the lock: the wall clock of
// the host that asks is hours ahead or behind, or its boot clock (a time namespace).
func TestAgesByAWrongClock(t *testing.T) {
	t.Parallel()
	stores := map[string]func(t *testing.T) string{"local": func(*testing.T) string { return "" }}
	maps.Copy(stores, leasedStores)
	testkit.Each(t, stores, func(t *testing.T, name string, store func(t *testing.T) string) {
		w := newWorld(t, store(t))
		ask := func(hours int64, args ...string) testkit.Result {
			k := &wallClock{w: w, c: w.Golock(append(args, "--store", w.Store)...)}
			return k.start(hours, k.c.Begin).Wait()
		}
		said := func(r testkit.Result, text string) {
			t.Helper()
			if r.Code != 0 || !strings.Contains(r.Stdout, text) {
				t.Errorf("%v; want it to say %q", r, text)
			}
		}
		r := newRow(w, 1)
		said(ask(7, "break", "job", "--all", "--older-than", "6h"), "nothing to evict")
		if r := ask(7, "ls", "job"); len(regexp.MustCompile(`:\d\d +\d+s `).FindAllString(r.Stdout, -1)) != 2 {
			t.Errorf("the ages of two that have just come: %v", r)
		}
		if name == "local" {
			inside := w.Golock("break", "job", "--all", "--older-than", "6h", "--store", w.Store)
			said(inside.By("unshare", "--time", "--boottime", "25200", "--fork").Run(), "nothing to evict")
		}
		r.undisturbed()
		said(ask(-31, "break", "job", "--older-than", "1ms"), "evicted from")
		r.holder.judged = true
		r.holder.Expects(79)
		w.finish()
	})
}

// A sweep of lease files compares the times of two files.
func TestCleanByAWrongClock(t *testing.T) {
	t.Parallel()
	w := leasing(t, leasedStores["mkdir"](t), time.Second)
	killed := w.holding()
	killed.judged = true
	watchdog, err := procfs.ReadStat(killed.commandPID())
	testkit.Must(t, err)
	killed.Signal(syscall.SIGSTOP) // so that neither of the two gives the slot back
	w.Kill(watchdog.Parent)
	w.Kill(killed.PID)
	killed.awaitDeath()
	cleans := func(hours int64, age, want string) {
		t.Helper()
		k := &wallClock{w: w, c: w.Golock("clean", "--older-than", age, "--store", w.Store)}
		if r := k.start(hours, k.c.Begin).Wait(); r.Code != 0 || !strings.HasPrefix(r.Stdout, want) {
			t.Errorf("%v; want %q", r, want)
		}
	}
	cleans(7, "6h", "0 removed")
	cleans(-31, "1ms", "1 removed")
	w.finish()
}

// wallClock is the wall clock of one golock. The kernel has one for all processes, and Go does not read
// it by the C library, so the code of the vdso(7) in that process is replaced.
type wallClock struct {
	w       *world
	p       *proc // nil: it is no run
	c       *testkit.Command
	process *testkit.Process
	ahead   int64 // address of the seconds that it is ahead
}

func newWallClock(w *world, flags ...string) *wallClock {
	p, c := w.prepare(-time.Microsecond, append(flags, "-v")...)
	return &wallClock{w: w, p: p, c: c.Setenv("TZ=UTC")}
}

// golock starts a run.
func (k *wallClock) golock() *proc {
	k.w.T.Helper()
	k.p.Process = k.start(0, k.c.Start)
	return k.p
}

// start starts it, with the replacement, which calls the kernel and adds to
// CLOCK_REALTIME what follows it.
func (k *wallClock) start(hours int64, start func() *testkit.Process) *testkit.Process {
	k.w.T.Helper()
	replacement := []byte{
		0x57,               // push %rdi
		0xb8, 228, 0, 0, 0, // mov $__NR_clock_gettime, %eax
		0x0f, 0x05, // syscall
		0x5f,                   // pop %rdi
		0x85, 0xff, 0x75, 0x0a, // test %edi, %edi; jnz to the end
		0x48, 0x8b, 0x0d, 4, 0, 0, 0, // mov 4(%rip), %rcx
		0x48, 0x01, 0x0e, 0xc3, // add %rcx, (%rsi); ret
	}
	replacement = binary.NativeEndian.AppendUint64(replacement, uint64(hours*3600))
	k.c.Traced = true
	over := make(chan error)
	go func() {
		runtime.LockOSThread() // which is the tracer
		k.process = start()
		_, err := unix.Wait4(k.process.PID, nil, 0, nil) // its execve
		if err == nil {
			err = k.replace(replacement)
		}
		if err == nil {
			err = unix.PtraceDetach(k.process.PID)
		}
		over <- err
	}()
	testkit.Must(k.w.T, <-over)
	k.process.Untraced()
	return k.process
}

func (k *wallClock) replace(code []byte) error {
	auxv, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", k.process.PID))
	if err != nil {
		return err
	}
	const sysinfoEHDR = 33
	for at := 0; at+16 <= len(auxv); at += 16 {
		if binary.NativeEndian.Uint64(auxv[at:]) != sysinfoEHDR {
			continue
		}
		base, image := int64(binary.NativeEndian.Uint64(auxv[at+8:])), make([]byte, 8<<10)
		if _, err := k.memory(func(f *os.File) (int, error) { return f.ReadAt(image, base) }); err != nil {
			return err
		}
		file, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			return err
		}
		symbols, err := file.DynamicSymbols()
		for _, s := range symbols {
			if s.Name == "__vdso_clock_gettime" && s.Size >= uint64(len(code)) {
				k.ahead = base + int64(s.Value) + int64(len(code)) - 8
				_, err := k.memory(func(f *os.File) (int, error) { return f.WriteAt(code, base+int64(s.Value)) })
				return err
			}
		}
		return fmt.Errorf("no place in the vdso: %v, %w", symbols, err)
	}
	return fmt.Errorf("there is no vdso")
}

func (k *wallClock) memory(f func(*os.File) (int, error)) (int, error) {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", k.process.PID), os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer memory.Close()
	return f(memory)
}

func (k *wallClock) set(hours int64) {
	k.w.T.Helper()
	seconds := binary.NativeEndian.AppendUint64(nil, uint64(hours*3600))
	_, err := k.memory(func(f *os.File) (int, error) { return f.WriteAt(seconds, k.ahead) })
	testkit.Must(k.w.T, err)
}

// check fails the test if golock has not seen that clock: at its end it prints the time.
func (k *wallClock) check(hours int64) {
	k.w.T.Helper()
	said := regexp.MustCompile(`(?m)^golock: (\d\d:\d\d:\d\d)\.\d+ `).FindAllStringSubmatch(k.p.Stderr(), -1)
	last, err := time.Parse(time.TimeOnly, said[len(said)-1][1])
	testkit.Must(k.w.T, err)
	want, _ := time.Parse(time.TimeOnly, time.Now().UTC().Add(time.Duration(hours)*time.Hour).Format(time.TimeOnly))
	if off := last.Sub(want).Abs(); off > 10*time.Minute && off < 24*time.Hour-10*time.Minute {
		k.w.T.Errorf("a golock whose clock is %d h ahead says %v: %s", hours, last, k.p.Stderr())
	}
}
