package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/runner"
	"golock/signals"
)

// watch is golock ls --watch: it looks again and again, and shows what it sees.
// On a terminal a table is redrawn in place; elsewhere, and as JSON, something
// is written when it is not what was written last. Its state belongs to the main
// goroutine; a look, which a store may keep waiting, has one of its own.
type watch struct {
	store    locks.Store
	name     string
	interval time.Duration
	json     bool
	out      *printer
	relay    *signals.Relay

	seen   string // what was written last, without the times that run out
	failed string // the last failure that was told
}

const (
	defaultInterval = time.Second
	longestLook     = 3 * time.Second        // then the store counts as out of reach
	leastInterval   = 100 * time.Millisecond // every look is a question to the store
)

// sight is what a look came to.
type sight struct {
	shown []shownEntry
	err   error
}

// loop shows until a signal ends it, and gives the exit code: 0 for INT, with
// which a user ends it.
func (w *watch) loop() int {
	relay, err := signals.NewRelay(runner.HasTerminal())
	if err != nil {
		return w.out.exit(err)
	}
	w.relay = relay
	relay.Catch()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	looks := make(chan sight, 1)
	looking := false
	next := time.Now()
	for {
		if now := time.Now(); !looking && !now.Before(next) {
			looking, next = true, now.Add(w.interval)
			go func() {
				defer relay.Wake()
				defer func() {
					if v := recover(); v != nil {
						looks <- sight{err: locks.NewPanicError(v)}
					}
				}()
				bound, end := context.WithTimeout(ctx, longestLook)
				defer end()
				shown, err := listOf(bound, w.store, w.name)
				looks <- sight{shown, err}
			}()
		}
		timeout := time.Duration(-1)
		if !looking {
			timeout = max(time.Until(next), 0)
		}
		sig, _ := relay.Next(timeout)
		switch {
		case sig == unix.SIGINT:
			return 0
		case signals.EndsWaiting(sig):
			return exitSignal + int(sig)
		}
		select {
		case s := <-looks:
			looking = false
			if next.Before(time.Now()) { // a slow store is not asked without a pause
				next = time.Now().Add(w.interval)
			}
			if code, ended := w.show(s); ended {
				return code
			}
		default:
		}
	}
}

// show writes what was seen. It reports true if there is no point in going on.
func (w *watch) show(s sight) (code int, ended bool) {
	if fault := codeOf(s.err); s.err != nil && fault != exitUnavailable {
		return w.out.exit(s.err), true
	}
	var err error
	if size := screenOf(1); size.columns > 0 && !w.json {
		err = w.draw(s, size)
	} else {
		err = w.report(s)
	}
	switch {
	case err == nil:
		return 0, false
	case err == syscall.EPIPE: // the reader has seen enough
		return exitSignal + int(unix.SIGPIPE), true
	}
	return w.out.exit(outputError{err}), true
}

// draw fills the terminal from its upper left corner.
func (w *watch) draw(s sight, size screen) error {
	what := "every lock"
	if w.name != "" {
		what = locks.Printable(w.name, nameLimit)
	}
	head := fmt.Sprintf("%s  every %v: %s in %s", time.Now().Format(time.TimeOnly), w.interval, what, w.store.URL())
	lines := append([]string{head, ""}, tableOf(s.shown, size.columns)...)
	if len(s.shown) == 0 && s.err == nil {
		lines = append(lines, "nobody holds, nobody waits")
	}
	if s.err != nil {
		lines = append(lines, "golock: "+locks.Printable(s.err.Error(), 400))
	}
	if room := max(size.rows-1, 1); len(lines) > room {
		more := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("… and %d more", more))
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for _, line := range lines {
		b.WriteString("\x1b[2K" + cut(line, size.columns) + "\n")
	}
	b.WriteString("\x1b[J")
	return writeOut(b.String())
}

// report writes what is new. A failure is told once.
func (w *watch) report(s sight) error {
	failure := ""
	if s.err != nil {
		failure = s.err.Error()
	}
	if failure != w.failed && failure != "" {
		w.out.warn(failure)
	}
	w.failed = failure
	lasting := make([]shownEntry, len(s.shown))
	for i, e := range s.shown {
		e.Expires = nil
		if e.HeldTill != "" {
			e.HeldTill = "held"
		}
		lasting[i] = e
	}
	if s.err != nil && len(s.shown) == 0 {
		return nil // nothing is known
	}
	seen := fmt.Sprintf("%+v", lasting)
	if seen == w.seen {
		return nil
	}
	w.seen = seen
	if w.json {
		return syscallError(printJSON(s.shown))
	}
	lines := append([]string{time.Now().Format(time.RFC3339)}, tableOf(s.shown, 0)...)
	if len(s.shown) == 0 {
		lines = append(lines, "nobody holds, nobody waits")
	}
	return writeOut(strings.Join(lines, "\n") + "\n\n")
}

// writeOut writes to standard output.
func writeOut(text string) error {
	_, err := os.Stdout.WriteString(text)
	return syscallError(err)
}

// syscallError is the kernel's word for a failed write.
func syscallError(err error) error {
	if path, ok := err.(*os.PathError); ok {
		return path.Err
	}
	return err
}
