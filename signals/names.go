// Package signals catches the signals of golock, and lets the command inherit what the caller ignored
// and blocked. It knows the names of signals, which of them golock passes on, and which end a run that
// still waits.
package signals

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// These are the first and the last real-time signal of programs. glibc keeps 32 and 33 for itself
// (signal(7)).
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
	sig := unix.SignalNum("SIG" + name)
	if sig == 0 {
		sig = synonym(name)
	}
	if sig == 0 {
		sig = realTime(name)
	}
	if sig == 0 {
		return 0, fmt.Errorf("there is no signal %q: expected a name such as TERM or a number from 1 to %d", s, rtMax)
	}
	return sig, nil
}

// synonym reads the names of signal(7) that package unix lacks. It returns 0 for any other name.
func synonym(name string) syscall.Signal {
	switch name {
	case "IOT":
		return unix.SIGABRT
	case "POLL":
		return unix.SIGIO
	case "CLD":
		return unix.SIGCHLD
	}
	return 0
}

// realTime reads RTMIN, RTMIN+N, RTMAX or RTMAX-N. It returns 0 for any other name.
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

// Name returns the signal's name without SIG, or its number if it has no name.
func Name(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	if sig > rtMin && sig < rtMax {
		return "RTMIN+" + strconv.Itoa(int(sig)-rtMin)
	}
	return strconv.Itoa(int(sig))
}

// Rewrites maps a signal to the signal that golock delivers in its place. A signal that is mapped to
// 0 is dropped. Rewrites are not chained.
type Rewrites map[syscall.Signal]syscall.Signal

// Add reads one rule A:B.
func (r Rewrites) Add(rule string) error {
	first, second, hasColon := strings.Cut(rule, ":")
	from, err := Parse(first)
	var to syscall.Signal // 0 drops the signal
	if err == nil && second != "0" {
		to, err = Parse(second)
	}
	switch {
	case !hasColon:
		return fmt.Errorf("%q is not a rewrite: expected A:B, such as TERM:INT, or A:0 to drop A", rule)
	case err != nil:
		return err
	case !Forwarded(from):
		return fmt.Errorf("%s is never passed on, so it cannot be rewritten", Name(from))
	}
	r[from] = to
	return nil
}

// Apply returns the signal to deliver for sig, or 0 if sig is dropped.
func (r Rewrites) Apply(sig syscall.Signal) syscall.Signal {
	if to, ok := r[sig]; ok {
		return to
	}
	return sig
}
