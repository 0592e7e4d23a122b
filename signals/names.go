// Package signals has the names of signals, which of them golock passes on and which end a run that
// still waits, and catches them without a change of what the command inherits.
package signals

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The real-time signals of programs: the C library keeps the first two for itself (signal(7)).
const (
	rtMin = 34
	rtMax = 64
)

// Parse reads a signal by name (TERM, SIGTERM, RTMIN+3, RTMAX-1; in any case) or by number.
func Parse(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n >= 1 && n <= rtMax && s[0] != '+' {
		return syscall.Signal(n), nil
	}
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	synonyms := map[string]syscall.Signal{"IOT": unix.SIGABRT, "POLL": unix.SIGIO, "CLD": unix.SIGCHLD} // signal(7)
	if sig := cmp.Or(synonyms[name], unix.SignalNum("SIG"+name), realTime(name)); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("there is no signal %q: want a name such as TERM or a number from 1 to %d", s, rtMax)
}

// realTime reads RTMIN, RTMIN+N, RTMAX or RTMAX-N; 0: it is none of these.
func realTime(name string) syscall.Signal {
	for n := range rtMax - rtMin + 1 {
		offset := strconv.Itoa(n)
		switch {
		case name == "RTMIN+"+offset, name == "RTMIN" && n == 0:
			return syscall.Signal(rtMin + n)
		case name == "RTMAX-"+offset, name == "RTMAX" && n == 0:
			return syscall.Signal(rtMax - n)
		}
	}
	return 0
}

// Name is the signal's name without SIG, or its number if it has none.
func Name(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	if sig > rtMin && sig < rtMax {
		return "RTMIN+" + strconv.Itoa(int(sig)-rtMin)
	}
	return strconv.Itoa(int(sig))
}

// Rewrites maps a signal to the one that is delivered instead; 0 drops it. Rewrites are not
// chained.
type Rewrites map[syscall.Signal]syscall.Signal

// Add reads one rule A:B.
func (r Rewrites) Add(rule string) error {
	from, to, ok := strings.Cut(rule, ":")
	a, err := Parse(from)
	var b syscall.Signal // 0: dropped
	if err == nil && to != "0" {
		b, err = Parse(to)
	}
	switch {
	case !ok:
		return fmt.Errorf("%q is not a rewrite: want A:B, such as TERM:INT, or A:0 to drop A", rule)
	case err != nil:
		return err
	case !Forwarded(a):
		return fmt.Errorf("%s is never passed on, so it cannot be rewritten", Name(a))
	}
	r[a] = b
	return nil
}

// Apply gives what to deliver for sig, or 0.
func (r Rewrites) Apply(sig syscall.Signal) syscall.Signal {
	if to, ok := r[sig]; ok {
		return to
	}
	return sig
}
