package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/config"
	"golock/locks"
	"golock/locks/open"
)

type lsCommand struct {
	lockArgument
	AllUsers boolFlag     `name:"all-users" brief:"" help:"Show the default directories of all users, as far as this user may read them."`
	JSON     boolFlag     `name:"json" brief:"" help:"Print a JSON array."`
	Metrics  boolFlag     `name:"metrics" brief:"" help:"Print the present state as Prometheus metrics: holders, waiters, ages and lease time left of each lock."`
	Quiet    boolFlag     `name:"quiet" short:"q" brief:"" help:"Print nothing and exit with 0 if somebody holds or waits for NAME, with 1 if nobody does, with 69 if the store cannot be asked."`
	Watch    boolFlag     `name:"watch" brief:"" help:"Redraw the table whenever it changes, until Ctrl-C (exit code 0)."`
	Interval durationFlag `name:"interval" file:"no" builtin:"1s" placeholder:"D" help:"With --watch, look every D."`
	storeFlags
}

const (
	questionLimit = 3 * time.Second        // --watch: a store that has not answered by then counts as out of reach
	leastInterval = 100 * time.Millisecond // --watch: every look is a question to the store
)

func (*lsCommand) Help() string {
	return `Holders come first, then waiters in the order in which they will get their turn.

Examples:
  golock ls
  golock ls backup
  golock ls --watch --interval 5s
        redrawn in place until Ctrl-C; in a pipe or file a new table at each change
  golock ls --json | jq '.[] | select(.state == "waiting")'
  golock ls backup -q && echo 'a backup runs or waits'`
}

func (c *lsCommand) run(out *term.Printer) error {
	v, err := resolve(c)
	if err != nil {
		return err
	}
	l := &lister{lsCommand: c, out: out, interval: v.Duration("interval")}
	switch {
	case c.Interval.given() && !c.Watch.on():
		v.Fail("interval", "needs --watch")
	case l.interval < leastInterval:
		v.Fail("interval", "%v is too short: at least %v", l.interval, leastInterval)
	case c.AllUsers.on() && (c.Store.given() || c.StoreFile.given()):
		v.Fail("all-users", "cannot be combined with a store: it shows the default ones")
	}
	c.checkForm(v)
	if v.Err() != nil {
		return v.Err()
	}
	out.Quiet = c.Quiet.on()
	warn(out, v)
	if c.AllUsers.on() {
		for _, store := range open.Locals() {
			l.stores = append(l.stores, locks.Know(store))
		}
		l.where = "the directories of all users"
	} else {
		store, _, err := openStore(v)
		if err != nil {
			return err
		}
		l.stores, l.where = []locks.KnownStore{store}, store.URL()
	}
	for _, store := range l.stores {
		defer store.Close()
	}
	if c.Watch.on() {
		return l.showUntilStopped()
	}
	return l.showOnce()
}

// checkForm refuses flags that ask for two forms of output, or for a form that needs a name or one store.
func (c *lsCommand) checkForm(v *config.Values) {
	forms := []struct {
		key  string
		flag *boolFlag
	}{{"json", &c.JSON}, {"metrics", &c.Metrics}, {"quiet", &c.Quiet}}
	var first string
	for _, form := range forms {
		switch {
		case !form.flag.on():
		case first != "":
			v.Fail(form.key, "cannot be combined with --%s", first)
		default:
			first = form.key
		}
	}
	switch {
	case first == "" || first == "json":
	case c.Watch.on():
		v.Fail(first, "cannot be combined with --watch")
	case c.AllUsers.on():
		v.Fail(first, "cannot be combined with --all-users")
	case c.Quiet.on() && !c.Name.given():
		v.Fail("quiet", "needs the NAME of a lock")
	}
}

// lister asks stores for entries and shows them.
type lister struct {
	*lsCommand
	out      *term.Printer
	stores   []locks.KnownStore
	where    string // the store's URL, or words for several stores
	interval time.Duration

	unprotected []locks.Entry // commands that run without their slot, at the last look

	shown     string // the entries that changes has shown last, without what changes by itself with time
	lastError error  // the error of the last look, which changes has printed
}

// showOnce shows the entries. After a failure it shows those that could be read.
func (l *lister) showOnce() error {
	entries, failed := l.list(context.Background())
	if l.Quiet.on() {
		return errorIfUnused(entries, failed)
	}
	l.warnOfUnprotected()
	switch {
	case l.Metrics.on() && failed != nil:
		return failed // some locks would be missing, as if nobody used them
	case l.Metrics.on():
		return printOut(metricsText(entries, l.where, l.Name.text()))
	case l.JSON.on() && failed != nil && len(entries) == 0:
		return failed // an empty array would say that nobody holds
	}
	var err error
	if l.JSON.on() {
		err = printJSON(entries)
	} else {
		err = l.printTable(entries, failed)
	}
	if err != nil {
		return err
	}
	return failed
}

// printJSON prints the entries as an array, piece by piece.
func printJSON(entries []locks.Entry) error {
	for piece := range term.JSONRows(entries) {
		err := printOut(piece)
		if err != nil {
			return err
		}
	}
	return nil
}

// printTable prints a table of the entries. Without entries it says so, unless they could not be read.
func (l *lister) printTable(entries []locks.Entry, failed error) error {
	lines := term.Table(entries, term.ScreenOf(unix.Stdout).Columns)
	if len(lines) > 0 {
		return printOut(strings.Join(lines, "\n") + "\n")
	}
	if failed == nil {
		what := ""
		if l.Name.given() {
			what = fmt.Sprintf(" for %q", locks.Printable(l.Name.text(), term.NameLimit))
		}
		l.out.Say("nothing holds or waits" + what + " in " + l.where)
	}
	return nil
}

// errorIfUnused returns the error with which ls --quiet ends, or nil if there is an entry.
func errorIfUnused(entries []locks.Entry, failed error) error {
	switch {
	case len(entries) > 0:
		return nil
	case failed != nil:
		return failed
	}
	return exitError{code: exitFailed}
}

// allUsersLimit limits the time for the directories of all users together.
const allUsersLimit = 30 * time.Second

// list asks for the entries of the name, or of all names. It goes on after a store that
// cannot be read, because that may belong to another user.
func (l *lister) list(ctx context.Context) (all []locks.Entry, failed error) {
	l.unprotected = nil
	if len(l.stores) == 1 {
		return l.entriesOf(ctx, l.stores[0])
	}
	ctx, cancel := context.WithTimeout(ctx, allUsersLimit)
	defer cancel()
	var errs []error
	for i, store := range l.stores {
		entries, err := l.entriesOf(ctx, store)
		all = append(all, entries...)
		isOfOtherUser := errors.Is(err, unix.EACCES)
		if !isOfOtherUser {
			errs = append(errs, err)
		}
		left := len(l.stores) - i - 1
		switch {
		case len(all) > locks.MaxListed:
			return all[:locks.MaxListed], errors.Join(locks.JoinSome(errs), locks.ListingCut(l.where))
		case ctx.Err() != nil && left > 0:
			errs = append([]error{fmt.Errorf("%s: %d of them were not read in %v", l.where, left, allUsersLimit)}, errs...)
			return all, locks.JoinSome(errs)
		}
	}
	return all, locks.JoinSome(errs)
}

// entriesOf asks one store, and notes the commands that run without their slot.
func (l *lister) entriesOf(ctx context.Context, store locks.KnownStore) ([]locks.Entry, error) {
	entries, err := store.Entries(ctx, l.Name.text())
	addWaitsFor(ctx, store, l.Name.text(), entries)
	if store.Can.Unprotected != nil && err == nil {
		unprotected, _ := store.Can.Unprotected(ctx, l.Name.text()) // after an error the entries are shown without these
		l.unprotected = append(l.unprotected, unprotected...)
	}
	return entries, err
}

// warnOfUnprotected prints a line for each command that runs without its slot.
func (l *lister) warnOfUnprotected() {
	for _, e := range l.unprotected {
		l.out.Warn("a command has closed its slot and runs without it", "name", e.Name, "pid", e.PID, "command", e.Command)
	}
}

// showUntilStopped is golock ls --watch: it shows the entries until a signal ends it. After INT,
// with which a user ends it, the exit code is 0. watch has a goroutine of its own,
// because the store or the terminal may block.
func (l *lister) showUntilStopped() error {
	ctx, stop := untilStopped()
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- l.watch(ctx) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if errors.Is(err, endedBy(syscall.SIGINT)) {
		return nil
	}
	return err
}

// watch asks and shows until ctx ends, or until an error comes that does not pass.
func (l *lister) watch(ctx context.Context) (err error) {
	defer locks.Recover(&err)
	for {
		limited, cancel := context.WithTimeout(ctx, questionLimit)
		entries, failed := l.list(limited)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if failed != nil && codeOf(failed) != exitUnavailable {
			return failed
		}
		show := l.changes
		if term.ScreenOf(unix.Stdout).Columns > 0 && !l.JSON.on() {
			show = l.screen
		}
		if err := printOut(show(entries, failed)); err != nil {
			return err
		}
		time.Sleep(l.interval) // showUntilStopped does not wait for it
	}
}

// screen fills the terminal from its upper left corner.
func (l *lister) screen(entries []locks.Entry, failed error) string {
	size := term.ScreenOf(unix.Stdout)
	what := locks.Printable(l.Name.text(), term.NameLimit)
	if what == "" {
		what = "every lock"
	}
	head := fmt.Sprintf("%s  %s, every %v: %s in %s", time.Now().Format(time.TimeOnly), totals(entries), l.interval, what, l.where)
	lines := append([]string{head, ""}, term.Table(entries, size.Columns)...)
	if failed != nil {
		lines = append(lines, "golock: "+locks.Printable(failed.Error(), 400))
	}
	for _, e := range l.unprotected {
		lines = append(lines, fmt.Sprintf("golock: process %d, started with --exec, runs without its slot of lock %q", e.PID, locks.Printable(e.Name, term.NameLimit)))
	}
	if room := max(size.Rows-1, 1); len(lines) > room {
		more := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("… and %d more", more))
	}
	const home, clearLine, clearRest = "\x1b[H", "\x1b[2K", "\x1b[J"
	var b strings.Builder
	b.WriteString(home)
	for _, line := range lines {
		b.WriteString(clearLine + term.Cut(line, size.Columns) + "\n")
	}
	return b.String() + clearRest
}

// totals counts holders and waiters.
func totals(entries []locks.Entry) string {
	waiting := 0
	for _, e := range entries {
		if e.State == locks.Waiting {
			waiting++
		}
	}
	return fmt.Sprintf("%d holding, %d waiting", len(entries)-waiting, waiting)
}

// changes returns the table, or the array, if it has changed. It prints a failure once.
func (l *lister) changes(entries []locks.Entry, failed error) string {
	if failed != nil && fmt.Sprint(failed) != fmt.Sprint(l.lastError) {
		l.out.Warn(failed.Error())
	}
	l.lastError = failed
	if failed != nil && len(entries) == 0 {
		return "" // an empty table would say that nobody holds
	}
	var present strings.Builder
	fmt.Fprint(&present, len(entries))
	for _, e := range entries {
		e.Expires, e.Age, e.Since, e.HeldTill = 0, 0, time.Time{}, time.Time{}
		fmt.Fprintf(&present, "%+v", e)
	}
	for _, e := range l.unprotected {
		fmt.Fprint(&present, e.Ref, e.PID)
	}
	if present.String() == l.shown {
		return ""
	}
	l.shown = present.String()
	l.warnOfUnprotected()
	if l.JSON.on() {
		return term.JSONText(term.Rows(entries), "  ")
	}
	lines := append([]string{time.Now().Format(time.RFC3339)}, term.Table(entries, 0)...)
	if len(entries) == 0 {
		lines = append(lines, totals(entries))
	}
	return strings.Join(lines, "\n") + "\n\n"
}
