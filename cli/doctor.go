package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golock/cli/doctor"
	"golock/cli/term"
	"golock/config"
	"golock/locks"
	"golock/locks/open"
)

type doctorCommand struct {
	nameFlag
	storeFlags
	TTL     durationFlag `name:"ttl" brief:"" variable:"GOLOCK_TTL" builtin:"30s" placeholder:"D" help:"Examine a networked store for runs with this --ttl."`
	JSON    boolFlag     `name:"json" brief:"" help:"Print a JSON array."`
	Verbose boolFlag     `name:"verbose" short:"v" brief:"" file:"no" help:"Print notes and passed checks too."`
}

func (*doctorCommand) Help() string {
	return `Checks this host and the store, as a run with the same flags would find them. It prints
each problem, why it matters and how to fix it, and with -v also notes and what is as it
should be. It takes and releases a test lock with a random name, and leaves nothing
behind. For SQL stores it prints the statements that create the table.

Examples:
  golock doctor
  golock doctor --store redis://locks --ttl 10s
  golock doctor --json | jq '.[] | select(.level == "problem")'

Exit codes:
  0 every promise holds here (there may be notes), 1 there is a problem,
  69 the store could not be checked: it cannot be reached, or refuses`
}

func (c *doctorCommand) run(out *term.Printer) error {
	v, store, err := resolveStore(c)
	if err != nil {
		return err
	}
	defer store.Close()
	ttl := readTTL(v, store, out)
	if v.Err() != nil {
		return v.Err()
	}
	ctx, stop := untilStopped()
	found, code := diagnose(ctx, v, store, ttl)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	stop()
	text := findingsText(found, c.Verbose.on())
	if c.JSON.on() {
		text = term.JSONText(found, "  ")
	}
	if err := printOut(text); err != nil {
		return err
	}
	return exitError{code: code}
}

// diagnose collects findings and returns the exit code. If the store could not be
// examined, the code is the one of the error. Otherwise it is 1 if there is a problem, or 0.
func diagnose(ctx context.Context, v *config.Values, store locks.KnownStore, ttl time.Duration) (found locks.Findings, code int) {
	found.OK("golock", buildText())
	found.OK("store", store.URL()+", "+chosenBy(v))
	for _, warning := range v.Warnings {
		found.Add(locks.Problem, "settings", warning, "that file may name another store: then runs of this user lock elsewhere",
			"let this user read it, or name the store in /etc/golock.toml or GOLOCK_STORE")
	}
	for _, note := range v.Notes {
		found.Add(locks.Note, "settings", note, "with an unexpected setting a run takes another lock, or none", "")
	}
	found.Append(doctor.Examine(store.IsNetworked)...)
	if store.IsNetworked {
		examineSockets(&found)
	}
	more, err := store.Examine(ctx, ttl)
	found.Append(more...)
	if err != nil {
		fix := ""
		if outage, ok := errors.AsType[*locks.OutageError](err); ok && !outage.Answered {
			fix = "start the server, or fix its URL or the network"
		}
		found.Add(locks.Problem, "reach", err.Error(), "nothing can be locked there, and the store could not be examined", fix)
		return found, codeOf(err)
	}
	if slices.ContainsFunc(found, func(f locks.Finding) bool { return f.Level == locks.Problem }) {
		code = exitFailed
	}
	return found, code
}

// chosenBy names the source of the store's URL.
func chosenBy(v *config.Values) string {
	for _, key := range []string{"store", "store-file"} {
		if source, ok := v.Given(key); ok {
			return "named by " + source.String()
		}
	}
	return "the default"
}

// examineSockets examines the directory where golocks of this user find each other.
func examineSockets(found *locks.Findings) {
	dir, err := open.Directory(false)
	if err != nil {
		found.Add(locks.Note, "held", "there is no directory for sockets: "+err.Error(),
			"golock held and acquire use sockets without files, which processes of another network namespace cannot reach",
			"the directory of the store local, as golock doctor --store local says")
		return
	}
	found.OK("held", "sockets of golock held and acquire are in "+dir)
}

// findingsText returns the problems, or all findings, and their number, for people.
func findingsText(found []locks.Finding, all bool) string {
	var b strings.Builder
	line := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%s%s%s\n", strings.Repeat(" ", 9), title, locks.Printable(text, 2000))
		}
	}
	count := map[locks.Level]int{}
	for _, f := range found {
		count[f.Level]++
		if !all && f.Level != locks.Problem {
			continue
		}
		fmt.Fprintf(&b, "%-8s %s: %s\n", f.Level, f.Subject, locks.Printable(f.What, 2000))
		line("why: ", f.Why)
		line("fix: ", f.Fix)
		for text := range strings.Lines(f.Text) {
			line("  ", strings.TrimRight(text, "\n"))
		}
	}
	fmt.Fprintf(&b, "%s, %s, %d ok", several(count[locks.Problem], "problem"), several(count[locks.Note], "note"), count[locks.OK])
	if !all {
		b.WriteString("; golock doctor -v shows all")
	}
	return b.String() + "\n"
}

func several(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
