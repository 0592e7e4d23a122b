package cli

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/locks"
	"golock/locks/open"
)

type lsCommand struct {
	lockArgument
	AllUsers boolFlag     `name:"all-users" help:"Show every user's default directory that this user may read."`
	JSON     boolFlag     `name:"json" help:"Print a JSON array."`
	Watch    boolFlag     `name:"watch" help:"Redraw the table in place whenever it changes, until Ctrl-C (exit code 0)."`
	Interval durationFlag `name:"interval" file:"no" builtin:"1s" placeholder:"D" help:"With --watch: look every D."`
	storeFlags
}

const (
	questionLimit = 3 * time.Second        // then the store counts as out of reach
	leastInterval = 100 * time.Millisecond // every look is a question to the store
)

func (*lsCommand) Help() string {
	return `Holders come first, then waiters in the order in which they will be served.

Examples:
  golock ls
  golock ls backup
  golock ls --watch --interval 5s
        redrawn in place until Ctrl-C; into a pipe or file a table whenever it changes
  golock ls --json | jq '.[] | select(.state == "waiting")'`
}

func (c *lsCommand) run(out *term.Printer) error {
	w, err := c.readSettings(out)
	if err != nil {
		return err
	}
	for _, store := range w.stores {
		defer store.Close()
	}
	if c.Watch.on() {
		return w.loop()
	}
	return w.once()
}

// readSettings finds out what is to be shown.
func (c *lsCommand) readSettings(out *term.Printer) (*lister, error) {
	v, err := resolve(c)
	if err != nil {
		return nil, err
	}
	interval := v.Duration("interval")
	switch {
	case c.Interval.given() && !c.Watch.on():
		v.Fail("interval", "needs --watch")
	case interval < leastInterval:
		v.Fail("interval", "%v is too short: at least %v", interval, leastInterval)
	case c.AllUsers.on() && (c.Store.given() || c.StoreFile.given()):
		v.Fail("all-users", "cannot be combined with a store: it shows the default ones")
	}
	if v.Err() != nil {
		return nil, v.Err()
	}
	l := &lister{Watch: term.Watch{
		Out: out, Name: c.Name.text(), URL: "the directories of all users", Interval: interval, JSON: c.JSON.on(),
	}}
	if c.AllUsers.on() {
		l.stores = open.Locals()
		return l, nil
	}
	store, _, err := openStore(v)
	if err != nil {
		return nil, err
	}
	l.stores, l.URL = []locks.Store{store}, store.URL()
	return l, nil
}

// lister asks stores for entries and shows them.
type lister struct {
	stores []locks.Store
	term.Watch
}

// once shows what there is. After a failure that is what was read before it.
func (l *lister) once() error {
	rows, failed := l.list(context.Background())
	var text string
	if l.JSON {
		text = term.JSONText(rows, "  ")
	} else if lines := term.Table(rows, term.ScreenOf(1).Columns); len(lines) > 0 {
		text = strings.Join(lines, "\n") + "\n"
	} else if failed == nil {
		l.Out.Say("nothing holds or waits in " + l.URL)
	}
	return cmp.Or(printOut(text), failed)
}

// list asks for the entries of the name, or of all. A store that cannot be read hides
// none of the others: it may be another user's.
func (l *lister) list(ctx context.Context) ([]term.Row, error) {
	rows := []term.Row{}
	var failed error
	for _, store := range l.stores {
		entries, err := store.Entries(ctx, l.Name)
		for _, e := range entries {
			rows = append(rows, term.RowOf(e))
		}
		if len(l.stores) == 1 || !errors.Is(err, unix.EACCES) { // else another user's
			failed = errors.Join(failed, err)
		}
	}
	return rows, failed
}

// loop is golock ls --watch: it shows the entries until a signal ends it. After INT,
// with which a user ends it, the exit code is 0. watch has a goroutine of its own, for
// the store or the terminal may block.
func (l *lister) loop() error {
	ctx, stop := untilStopped()
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- l.watch(ctx) }()
	select {
	case err := <-ended:
		if ctx.Err() == nil {
			return err
		}
	case <-ctx.Done():
	}
	if err := context.Cause(ctx); !errors.Is(err, exitError{code: exitSignal + int(syscall.SIGINT)}) {
		return err
	}
	return nil
}

// watch asks and shows until ctx ends or there is no point in going on.
func (l *lister) watch(ctx context.Context) (err error) {
	defer locks.Recover(&err)
	for {
		limited, cancel := context.WithTimeout(ctx, questionLimit)
		rows, failed := l.list(limited)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if failed != nil && codeOf(failed) != exitUnavailable {
			return failed
		}
		if err := printOut(l.Show(rows, failed)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(l.Interval):
		}
	}
}
