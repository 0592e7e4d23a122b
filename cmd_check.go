package main

import (
	"context"
	"crypto/rand"
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

	"golock/check"
	"golock/config"
	"golock/locks"
)

// exitFailed is the exit code of a check that was not passed.
const exitFailed = 1

// checkPatience is how long a check waits while nothing happens: twice the
// usual lease, after which every lock must be free again.
const checkPatience = time.Minute

// killedTTL is the lease of runs of which some are killed. One that dies between
// its grant and the start of its guard is known to nobody, and the others wait
// for the end of its lease.
const killedTTL = 10 * time.Second

// tidyLimit bounds the tidying up in the store.
const tidyLimit = 2 * time.Second

// checkCommand is the grammar of golock check.
type checkCommand struct {
	Store    *word
	Config   *word
	Max      *word
	Loops    *word
	Children *word
	Kill     *word
	With     *word
	JSON     bool `name:"json"`
}

func (c *checkCommand) run(out *printer) int {
	// What ends the check ends its runs first, and tidies up. A reader of the
	// report who has gone must not end it in between.
	caught := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(sig) {
			signal.Notify(caught, sig)
		}
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		cancel(stopped{(<-caught).(syscall.Signal)})
	}()

	t := &checking{out: out}
	report, err := t.do(ctx, c)
	var stop stopped
	var start *check.StartError
	switch {
	case errors.As(err, &stop):
		return exitSignal + int(stop.by)
	case errors.As(err, &start) && t.test.Tool.Golock:
		out.fail(start)
		if slices.Contains([]int{exitUsage, exitUnavailable, exitFault, exitConfig}, start.Code) {
			return start.Code
		}
		return exitFailed
	case errors.As(err, &start):
		out.fail(fmt.Errorf("no child ever got inside: %w", start))
		return exitFailed
	case err != nil:
		return out.exit(err)
	}
	if c.JSON {
		err = writeJSON(os.Stdout, report, "")
	} else {
		_, err = fmt.Print(t.text(report))
	}
	switch {
	case err != nil:
		return out.exit(outputError{err})
	case !report.Passed:
		return exitFailed
	}
	return 0
}

// stopped says that a signal has ended the check.
type stopped struct{ by syscall.Signal }

func (s stopped) Error() string { return "told to stop: " + s.by.String() }

// checking is a check on its way.
type checking struct {
	out   *printer
	test  check.Test
	what  string // what is tested, in words
	began time.Time

	reached bool // the store could be used
}

// do makes the check and tidies up after it.
func (t *checking) do(ctx context.Context, c *checkCommand) (report *check.Report, err error) {
	if err := t.settle(c); err != nil {
		return nil, err
	}
	if t.test.Program, err = os.Executable(); err != nil {
		return nil, err
	}
	if t.test.Dir, err = os.MkdirTemp("", "golock-check-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(t.test.Dir)
	if c.With != nil {
		t.useTemplate(string(*c.With))
	} else {
		tidy, err := t.useGolock(c)
		if err != nil {
			return nil, err
		}
		defer tidy()
	}
	t.began = time.Now()
	t.test.Progress = func(int, int) {}
	if isTerminal(2) {
		t.test.Progress = t.progress
		defer t.out.write([]byte("\r\x1b[K"))
	}
	report, err = t.test.Do(ctx)
	t.reached = err == nil
	return report, err
}

// settle reads the numbers.
func (t *checking) settle(c *checkCommand) error {
	t.test.Patience = checkPatience
	number := func(flag string, given *word, otherwise, least, most int) (int, error) {
		if given == nil {
			return otherwise, nil
		}
		n, err := config.ParseInt(string(*given), least, most)
		if err != nil {
			return 0, usageError{fmt.Errorf("--%s: %w", flag, err)}
		}
		return n, nil
	}
	var err error
	const most = 1_000_000
	if t.test.Limit, err = number("max", c.Max, 1, 1, most); err != nil {
		return err
	}
	if t.test.Loops, err = number("loops", c.Loops, 1000, 1, most); err != nil {
		return err
	}
	enough := 5
	if t.test.Limit >= enough { // fewer could not be too many
		enough = t.test.Limit + 2
	}
	if t.test.Children, err = number("children", c.Children, enough, 1, 10_000); err != nil {
		return err
	}
	if t.test.Kill, err = number("kill", c.Kill, 0, 0, 100); err != nil {
		return err
	}
	switch {
	case c.With != nil && c.Store != nil:
		return usageError{errors.New("--with: cannot be combined with --store: another tool is tested then")}
	case c.With != nil && !strings.Contains(string(*c.With), "{}"):
		return usageError{errors.New("--with: has no {} where the child's command line belongs, as in 'flock /tmp/x {}'")}
	case min(t.test.Children, t.test.Loops) <= t.test.Limit:
		t.out.warn(fmt.Sprintf("%d children can never be more than %d at once: this proves nothing about the limit",
			min(t.test.Children, t.test.Loops), t.test.Limit))
	}
	return nil
}

// useTemplate tests another tool.
func (t *checking) useTemplate(template string) {
	t.what = locks.Printable(template, 80)
	t.test.Tool = check.Tool{
		Command: func(child []string) []string {
			return []string{"/bin/sh", "-c", strings.ReplaceAll(template, "{}", check.Quote(child))}
		},
		Env: environment("GOLOCK_SLOT", "GOLOCK_SLOTS", "GOLOCK_FENCE"),
	}
}

// useGolock tests golock on a store, with a name that nobody else has. The runs
// take the store's address from a file that is nowhere on disk and that only this
// user can read, since it may have a password in it, and nothing else from files
// and variables: a wait or a hold there is not meant
// for them.
func (t *checking) useGolock(c *checkCommand) (tidy func(), err error) {
	given := flags{}
	given.text("store", c.Store)
	given.text("config", c.Config)
	v, err := given.resolveWithout("GOLOCK_NAME")
	if err != nil {
		return nil, err
	}
	store, err := storeOf(v)
	if err != nil {
		return nil, err
	}
	text := "[defaults]\nstore = " + strconv.Quote(addressOf(v)) + "\n"
	if t.test.Kill > 0 {
		text += "ttl = " + strconv.Quote(killedTTL.String()) + "\n"
	}
	file, err := memoryFile(text)
	if err != nil {
		return nil, fmt.Errorf("a file for the settings of the runs: %w", err)
	}
	name := "golock-check-" + strings.ToLower(rand.Text())
	golock := []string{t.test.Program, "run", "--config", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd()), "--name", name, "--max", strconv.Itoa(t.test.Limit), "-v", "--log-format", "json", "--"}
	var own []string
	for _, s := range settings() {
		if s.Env != "" {
			own = append(own, s.Env)
		}
	}
	t.what = store.URL()
	t.test.Tool = check.Tool{
		Command: func(child []string) []string { return append(slices.Clone(golock), child...) },
		Env:     environment(append(own, "GOLOCK_SLOT", "GOLOCK_SLOTS", "GOLOCK_FENCE")...),
		Golock:  true,
		Ordered: store.Traits().Queue,
	}
	return func() {
		defer store.Close()
		file.Close()
		forgetter, ok := store.(locks.Forgetter)
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), tidyLimit)
		defer cancel()
		if err := forgetter.Forget(ctx, name); err != nil && t.reached {
			t.out.warn("what is left of the lock could not be removed", "name", name, "error", err)
		}
	}, nil
}

// memoryFile is a file without a name that is gone when nobody has it open.
func memoryFile(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("golock-check", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "settings")
	if err := f.Chmod(0o600); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := f.WriteString(text); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// environment is golock's own, without some variables.
func environment(without ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(without, name)
	})
}

// checkChild is golock as a child of a check, which no user ever calls.
func checkChild(args []string, out *printer) int {
	if err := check.Child(args); err != nil {
		return out.exit(usageError{err})
	}
	return 0
}
