package locks

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// ErrWouldBlock says that Join would have to wait for the network or for another process, and may not
// (Request.AtOnce).
var ErrWouldBlock = errors.New("the store cannot be used without waiting")

// ErrLost says that a slot is held no longer: its lease ran out, or it was
// taken back.
var ErrLost = errors.New("the slot is not held any more")

// OutageError says that a store is unavailable for now: no attempt could reach it, or it refuses for a
// temporary reason (it loads its data, has no room or no connections left, is in quarantine). A lasting
// fault (of the URL, login, rights or versions) is never an OutageError.
type OutageError struct {
	Store    string // the URL of the store, without secrets
	Err      error  // the last failure
	Answered bool   // the store could be reached, and refused
}

func (e *OutageError) Error() string {
	if e.Answered {
		return fmt.Sprintf("%s: %v", e.Store, e.Err)
	}
	return fmt.Sprintf("%s cannot be reached: %v", e.Store, e.Err)
}

func (e *OutageError) Unwrap() error { return e.Err }

// QuarantineError says that a store that may have forgotten who holds gives no slots
// until End. An *OutageError of a request that could not wait so long wraps it.
type QuarantineError struct {
	Cause string // what has happened to the store
	End   time.Time
}

func (e *QuarantineError) Error() string {
	left := max(time.Until(e.End), 0)
	return fmt.Sprintf("%s: it gives no slots for another %v, so that holders it may have forgotten can come back "+
		"(?quarantine= in the URL)", e.Cause, left.Round(100*time.Millisecond))
}

// EvictedError says who took a place or a slot back. It is an ErrLost too. The slot of a holder stays taken
// until the holder releases it or its term ends.
type EvictedError struct{ By string }

func (e *EvictedError) Error() string { return fmt.Sprintf("evicted by %s", Printable(e.By, 200)) }

// Is implements errors.Is: an EvictedError is an ErrLost too.
func (e *EvictedError) Is(target error) bool { return target == ErrLost }

// PathError is a file, directory or address that cannot be used for a lock.
type PathError struct {
	Op   string // the system call, if one failed
	Path string
	Err  error
	Hint string // what the user can do, if that is known
}

func (e *PathError) Error() string {
	text := e.Path + ": " + e.Err.Error()
	if e.Op != "" {
		text = e.Op + " " + text
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

func (e *PathError) Unwrap() error { return e.Err }

// BusyError says why a request got no slot, if it may not wait or has stopped waiting.
type BusyError struct {
	Name    string
	Holders []Entry // the holders, as far as the store knows them
	Waiters int     // the number of waiters
	Full    bool    // there are as many waiters as Request.MaxQueue allows
	Inside  *Ref    // the enclosing run that has the slot: the request would wait for itself
	Reason  string  // what is in the way, if that is neither holders nor waiters; else empty
}

func (e *BusyError) Error() string {
	if e.Inside != nil {
		return fmt.Sprintf("%q is held by the enclosing run %s and has no free slot: waiting for it would never end",
			e.Name, e.Inside)
	}
	if e.Reason != "" {
		return fmt.Sprintf("%q is busy: %s", e.Name, e.Reason)
	}
	text := fmt.Sprintf("%q is busy", e.Name)
	if len(e.Holders) > 0 {
		text += ": held by " + HoldersText(e.Holders)
	}
	if e.Waiters > 0 {
		text += fmt.Sprintf("; %d waiting", e.Waiters)
	}
	if e.Full {
		text += ", the queue is full"
	}
	return text
}

// HoldersText describes the first three holders.
func HoldersText(holders []Entry) string {
	var first []string
	for _, h := range holders[:min(3, len(holders))] {
		first = append(first, h.Holder())
	}
	text := strings.Join(first, ", ")
	if n := len(holders) - 3; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// MaxListed is the largest number of entries in a listing of all locks of a store: others may have made
// any number, and each takes memory.
const MaxListed = 1 << 16

// ListingCut returns the error of a listing with more than MaxListed entries. where is the store or the path.
func ListingCut(where string) error {
	return fmt.Errorf("%s: has more entries: only %d are listed (name the lock, or golock clean)", where, MaxListed)
}

// JoinSome joins the first ten errors and counts the rest: there may be one for each of the many files that
// others have made.
func JoinSome(all []error) error {
	const most = 10
	all = slices.DeleteFunc(all, func(err error) bool { return err == nil })
	if more := len(all) - most; more > 0 {
		all = append(all[:most:most], fmt.Errorf("and %d more such errors", more))
	}
	return errors.Join(all...)
}

// PanicError carries a panic from a store's goroutine to the caller that waits for it. The caller
// releases what it holds before anything else.
type PanicError struct {
	Value any
	Stack []byte
}

// Recover turns a panic into an error. The goroutines of stores and runs defer it: otherwise a panic
// would end the process with the slot taken.
func Recover(err *error) {
	switch v := recover().(type) {
	case nil:
	case *PanicError: // the panic happened in another goroutine
		*err = v
	default:
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }
