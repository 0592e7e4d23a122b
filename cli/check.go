package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/cli/check"
	"golock/cli/term"
	"golock/config"
	"golock/internal/entry"
	"golock/locks"
)

// checkPatience is how long a check waits while nothing happens: twice the usual
// TTL, after which every lock must be free again.
const checkPatience = time.Minute

// killedTTL is the lease time if some runs are killed. If a run dies between its
// grant and the start of its watchdog, the other runs wait until its lease ends.
const killedTTL = 10 * time.Second

// tidyLimit limits the removal of the lock from the store.
const tidyLimit = 2 * time.Second

type checkCommand struct {
	storeFlags
	Max      intFlag  `name:"max" brief:"" builtin:"1" placeholder:"N" help:"Let N children run at a time."`
	Loops    intFlag  `name:"loops" brief:"" file:"no" builtin:"1000" placeholder:"N" help:"Run N children."`
	Children intFlag  `name:"children" file:"no" placeholder:"N" help:"Start N children at a time. The default is 5, or more for a larger --max."`
	Kill     intFlag  `name:"kill" brief:"" file:"no" builtin:"0" placeholder:"PERCENT" help:"Kill this percentage of the golocks: one half while the command runs, the other half at a random moment."`
	With     textFlag `name:"with" brief:"" placeholder:"TEMPLATE" help:"Test another lock tool: this shell command, with the child's command line in place of {}."`
	JSON     boolFlag `name:"json" brief:"" help:"Print the report as JSON."`
}

func (*checkCommand) Help() string {
	return `Runs a thousand child processes, five at a time, each with a golock run of its own.
Each child reads a counter that nothing else protects, adds one and writes it back. The
report on standard output says how many ran at the same time, whether an addition was
lost, whether a child was overtaken, and how long it took from the end of one child to
the start of the next. The lock has a random name and disturbs no other lock. On flock,
fcntl and bind the URL itself is the lock.

With --max N each slot number has a counter of its own. With --kill some golocks are
killed with KILL, half of them while their child is inside; other children finish their
work. With --with golock tests another lock tool, but only whether more than --max run
at a time. A test in which nothing happens for a minute has failed.

Examples:
  golock check
  golock check --store redis://locks.example.net --kill 20
  golock check --max 3 --loops 200
  golock check --with 'flock /tmp/x {}'
  golock check --with 'env {}'
        must fail, because env locks nothing

Exit codes:
  0 passed, 1 failed; 64 usage, 69 the store cannot be used, 78 configuration,
  stopped by signal N it dies of N (128+N in a shell; nothing stays behind)`
}

func (c *checkCommand) run(out *term.Printer) error {
	// A signal ends the runs first, then the test tidies up. PIPE, from a reader of
	// the report that is gone, must not end golock before that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := untilStopped()
	t := &lockTest{out: out}
	report, err := t.do(ctx, c)
	stop()
	if start, ok := errors.AsType[*check.StartError](err); ok {
		code := exitFailed
		if t.test.Golock && slices.Contains([]int{exitUsage, exitUnavailable, exitFault, exitConfig}, start.Code) {
			code = start.Code
		}
		return exitError{code: code, err: fmt.Errorf("no child could start: %w", start)}
	}
	if err != nil {
		return err
	}
	text := t.reportText(report)
	if c.JSON.on() {
		text = term.JSONText(report, "")
	}
	if err := printOut(text); err != nil {
		return err
	}
	if !report.Passed {
		return exitError{code: exitFailed}
	}
	return nil
}

// lockTest is one call of golock check.
type lockTest struct {
	out    *term.Printer
	test   check.Test
	tested string // the store's URL, or the command line of another tool
}

// do runs the test and tidies up.
func (t *lockTest) do(ctx context.Context, c *checkCommand) (report *check.Report, err error) {
	v, err := resolve(c)
	if err != nil {
		return nil, err
	}
	if err := t.readSettings(c, v); err != nil {
		return nil, err
	}
	warn(t.out, v)
	t.test.Program, err = os.Executable()
	if err != nil {
		return nil, needs("golock check", "/proc", "mount -t proc proc /proc", err)
	}
	err = unix.Access(os.DevNull, unix.R_OK|unix.W_OK) // the children read and write it
	if err != nil {
		return nil, needs("golock check", os.DevNull, "mount /dev here", err)
	}
	if c.With.given() {
		t.useTemplate(c.With.text())
	} else {
		tidy, failed := t.useGolock(v)
		if failed != nil {
			return nil, failed
		}
		defer func() {
			isReachable := err == nil
			tidy(isReachable)
		}()
	}
	t.test.Dir, err = os.MkdirTemp("", "golock-check-")
	if err != nil {
		return nil, needs("golock check", os.TempDir(), "set TMPDIR to a directory for its counters", err)
	}
	defer os.RemoveAll(t.test.Dir)
	if most := min(t.test.Children, t.test.Loops); most <= t.test.Limit {
		t.out.Warn(fmt.Sprintf("%d children never exceed %d at once: this proves nothing about the limit", most, t.test.Limit))
	}
	began := time.Now()
	t.test.Progress = func(done, total int) {
		if done%10 == 0 {
			t.out.Live(fmt.Sprintf("golock: %d of %d runs, %v", done, total, time.Since(began).Round(time.Second)))
		}
	}
	defer t.out.Live("")
	return t.test.Do(ctx)
}

// readSettings reads the numbers. They come from flags only: variables and files are
// for runs.
func (t *lockTest) readSettings(c *checkCommand, v *config.Values) error {
	t.test.Patience, t.test.Limit = checkPatience, 1
	const most = 1_000_000
	if c.Max.given() {
		t.test.Limit = v.Int("max", 1, most)
	}
	t.test.Loops = v.Int("loops", 1, most)
	t.test.Children = max(5, t.test.Limit+2) // more than the limit, so that a lock can let in too many
	if c.Children.given() {
		t.test.Children = v.Int("children", 1, 10_000)
	}
	t.test.Kill = v.Int("kill", 0, 100)
	switch {
	case v.Err() != nil:
		return v.Err()
	case c.With.given() && c.Store.given():
		return usageError{errors.New("--with: cannot be combined with --store: it tests another tool")}
	case c.With.given() && !strings.Contains(c.With.text(), "{}"):
		return usageError{errors.New("--with: has no {} where the child's command line belongs, as in 'flock /tmp/x {}'")}
	}
	return nil
}

// useTemplate makes the test run another tool.
func (t *lockTest) useTemplate(template string) {
	t.tested = locks.Printable(template, 80)
	t.test.Command = func(child []string) []string {
		return []string{"/bin/sh", "-c", strings.ReplaceAll(template, "{}", check.Quote(child))}
	}
	t.test.Env = environment("GOLOCK_SLOT", "GOLOCK_SLOTS", "GOLOCK_FENCE")
}

// useGolock makes the test run golock on a store, with a name that nobody else has. The runs
// read the store's URL, which may have a password, from a file without a name,
// and nothing from variables and other files. tidy removes the lock from the store.
// It warns if it cannot, but not if the store is out of reach anyway.
func (t *lockTest) useGolock(v *config.Values) (tidy func(isReachable bool), err error) {
	store, address, err := openStore(v)
	if err != nil {
		return nil, err
	}
	text := "[defaults]\nstore = " + strconv.Quote(address.url) + "\n"
	if t.test.Kill > 0 {
		text += "ttl = " + strconv.Quote(killedTTL.String()) + "\n"
	}
	file, err := memoryFile(text)
	if err != nil {
		return nil, fmt.Errorf("creating a file for the settings of the runs: %w", err)
	}
	ref, err := locks.NewRef("")
	if err != nil {
		return nil, err
	}
	name := "golock-check-" + ref.ID.String()
	golock := []string{t.test.Program, "run", "--config", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd()), "--name", name,
		"--max", strconv.Itoa(t.test.Limit), "-v", "--log-format", "json", "--"}
	ignored := []string{"GOLOCK_SLOT", "GOLOCK_SLOTS", "GOLOCK_FENCE"}
	all, _ := settings(&runCommand{})
	for _, s := range all {
		ignored = append(ignored, s.Env)
	}
	t.tested = store.URL()
	t.test.Command = func(child []string) []string { return append(slices.Clone(golock), child...) }
	t.test.Env = environment(ignored...)
	t.test.Golock = true
	return func(isReachable bool) {
		defer store.Close()
		file.Close() // the runs have read it; this use keeps the garbage collector from closing it earlier
		if store.IsPlain {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), tidyLimit)
		defer cancel()
		err := store.Can.Queue.Forget(ctx, name)
		if err != nil && isReachable {
			t.out.Warn("what is left of the lock could not be removed", "name", name, "error", err)
		}
	}, nil
}

// reportText writes the report for people.
func (t *lockTest) reportText(r *check.Report) string {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", label, fmt.Sprintf(format, args...))
	}
	line("tested", "%s", t.tested)
	killed := ""
	if t.test.Kill > 0 {
		killed = fmt.Sprintf("; %d killed, others did their work", r.Killed)
	}
	line("children", "%d, %d at a time%s; %.1f s", r.Loops, t.test.Children, killed, r.Seconds)
	line("inside", "at most %d at the same time; the limit is %d", r.MaxConcurrent, r.Limit)
	if r.Uncounted {
		line("counter", "none: the tool gives no slot numbers")
	} else {
		line("counter", "%d after %d children, %d lost", r.Counter, r.Loops, r.LostUpdates)
	}
	if r.OrderInversions == nil {
		line("order", "not promised")
	} else {
		line("order", "%d of %d overtook a child that had waited before them", *r.OrderInversions, r.Ranked)
	}
	if r.HandOff != (check.Times{}) {
		line("hand-off", "median %.2f ms, 99 of 100 within %.2f ms, longest %.2f ms "+
			"(from the end of one child to the start of the next)", r.HandOff.P50, r.HandOff.P99, r.HandOff.Max)
	}
	if r.Passed {
		updates := ", and no update was lost"
		if r.Uncounted {
			updates = ""
		}
		line("passed", "it excludes: never more than %d inside%s", r.Limit, updates)
		return b.String()
	}
	label := "FAILED"
	for _, p := range r.Problems {
		line(label, "%s", p)
		label = ""
	}
	return b.String()
}

// memoryFile makes a file without a name that is gone when nobody has it open.
func memoryFile(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("golock-check", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "settings")
	err = f.Chmod(0o600)
	_, failed := f.WriteString(text)
	return f, errors.Join(err, failed)
}

// environment returns the environment of golock without the given variables.
func environment(without ...string) []string {
	return slices.DeleteFunc(entry.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(without, name)
	})
}

// CheckChild is golock as a child of golock check.
func CheckChild(args []string) Exit {
	return runProgram(func(*term.Printer) error {
		if err := check.Child(args); err != nil {
			return usageError{err}
		}
		return nil
	})
}
