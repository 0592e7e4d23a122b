package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golock/config"
	"golock/locks"
	"golock/locks/open"
	"golock/machine"
)

// exitProblem is doctor's: a promise does not hold here.
const exitProblem = 1

// doctorCommand is the grammar of golock doctor.
type doctorCommand struct {
	Name   *word
	Store  *word
	Config *word
	TTL    *word `name:"ttl"`
	JSON   bool  `name:"json"`
}

func (c *doctorCommand) run(out *printer) int {
	given := flags{}
	given.text(config.NameKey, c.Name)
	given.text("store", c.Store)
	given.text("config", c.Config)
	given.text("ttl", c.TTL)
	v, err := given.resolve()
	if err != nil {
		return out.exit(err)
	}
	store, err := storeOf(v)
	if err != nil {
		return out.exit(err)
	}
	defer store.Close()
	ttl, err := doctorTTL(v, store)
	if err != nil {
		return out.exit(err)
	}
	ctx, told := untilTold()
	found, code := diagnose(ctx, v, store, ttl)
	if sig := told(); sig != 0 {
		return exitSignal + int(sig)
	}
	show := printFindings
	if c.JSON {
		show = printFindingsJSON
	}
	if err := show(os.Stdout, found); err != nil {
		return out.exit(outputError{err})
	}
	return code
}

// untilTold gives a context that ends when a signal tells golock to stop: what
// has been done in the store is taken back even then. The function ends it, and
// says which signal that was; 0 if none came.
func untilTold() (context.Context, func() syscall.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	signals, which := make(chan os.Signal, 1), make(chan syscall.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) { // nohup, a background job of a script
			signal.Notify(signals, sig)
		}
	}
	go func() {
		defer close(which)
		select {
		case sig := <-signals:
			which <- sig.(syscall.Signal)
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() syscall.Signal {
		signal.Stop(signals)
		cancel()
		return <-which
	}
}

// doctorTTL is that of the runs in question, as they would read it.
func doctorTTL(v *config.Values, store locks.Store) (time.Duration, error) {
	if !store.Traits().Leased {
		if source, ok := v.Given("ttl"); ok && source.FromFlag() {
			return 0, v.Errorf("ttl", "has no meaning on the store %s: a slot there is free when its holder ends", store.URL())
		}
		return 0, nil
	}
	ttl, err := v.Duration("ttl", defaultTTL)
	if err == nil && ttl < leastTTL {
		err = v.Errorf("ttl", "%v is too short: at least %v", ttl, leastTTL)
	}
	return ttl, err
}

// diagnose collects what there is to say, and the exit code: that of the store's
// error if it could not be examined at all, else 1 if there is any problem.
func diagnose(ctx context.Context, v *config.Values, store locks.Store, ttl time.Duration) (found []locks.Finding, code int) {
	found = []locks.Finding{
		{Level: locks.OK, Subject: "golock", What: fmt.Sprintf("%s (%s %s/%s)", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)},
		{Level: locks.OK, Subject: "store", What: store.URL() + ", " + chosenBy(v)},
	}
	leased := store.Traits().Leased
	found = append(found, machine.Examine(leased, ttl)...)
	if leased {
		found = append(found, meeting())
	}
	examiner, ok := store.(locks.Examiner)
	if ok {
		more, err := examiner.Examine(ctx, ttl)
		found = append(found, more...)
		if err != nil {
			f := locks.Finding{Level: locks.Problem, Subject: "reach", What: err.Error(), Why: "nothing can be locked there, and nothing more can be said about the store"}
			var outage *locks.OutageError
			if errors.As(err, &outage) {
				f.Mend = "start the server, or mend its URL or what lies between"
			}
			found = append(found, f)
			return found, codeOf(err)
		}
	}
	for _, f := range found {
		if f.Level == locks.Problem {
			code = exitProblem
		}
	}
	return found, code
}

// chosenBy says where the store's URL comes from.
func chosenBy(v *config.Values) string {
	source, ok := v.Given("store")
	if !ok {
		return "the default: neither flag, variable nor file names one"
	}
	return "named by " + source.String()
}

// meeting looks at the place where golocks of this user find each other.
func meeting() locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "held", What: "golock held and acquire find each other in "}
	dir, err := open.Directory(false)
	if err != nil {
		f.Level, f.What = locks.Note, "there is no directory where golocks of this user find each other: "+err.Error()
		f.Why, f.Mend = "golock acquire does not work, and golock held without --id has nobody to ask", "the directory of the store local, as golock doctor --store local says"
		return f
	}
	f.What += dir
	return f
}

func printFindingsJSON(to io.Writer, found []locks.Finding) error {
	return writeJSON(to, found, "  ")
}

// printFindings writes them for people, and their number in the last line.
func printFindings(to io.Writer, found []locks.Finding) error {
	w := bufio.NewWriter(to)
	indent := strings.Repeat(" ", 9)
	count := map[locks.Level]int{}
	for _, f := range found {
		count[f.Level]++
		fmt.Fprintf(w, "%-8s %s: %s\n", f.Level, f.Subject, locks.Printable(f.What, 2000))
		if f.Level != locks.OK {
			paragraph(w, indent, "why: ", f.Why)
			paragraph(w, indent, "mend: ", f.Mend)
		}
		for line := range strings.Lines(f.Text) {
			fmt.Fprintf(w, "%s%s\n", indent+"  ", locks.Printable(strings.TrimRight(line, "\n"), 2000))
		}
	}
	fmt.Fprintf(w, "%s, %s\n", several(count[locks.Problem], "problem"), several(count[locks.Note], "note"))
	return w.Flush()
}

func paragraph(w io.Writer, indent, title, text string) {
	if text != "" {
		fmt.Fprintf(w, "%s%s%s\n", indent, title, locks.Printable(text, 2000))
	}
}

func several(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
