package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"golock/locks"
)

// Refusal is an error that does not go away by trying again.
type Refusal struct {
	Err       error
	Hint      string // what the user can do
	Temporary bool   // for who has an entry already: a server gets memory again
}

func (e *Refusal) Error() string {
	if e.Hint == "" {
		return e.Err.Error()
	}
	return strings.TrimRight(e.Err.Error(), ". ") + " (" + e.Hint + ")"
}

func (e *Refusal) Unwrap() error { return e.Err }

// LoginHint is for a server that refuses a login.
const LoginHint = "user and password stand before the host, USER:PASSWORD@HOST, best in GOLOCK_STORE"

// IsFinal reports whether there is no point in another attempt.
func IsFinal(err error) bool {
	var r *Refusal
	return errors.As(err, &r)
}

// IsTemporary reports whether who holds or waits already should try again: an outage
// never ends the waiting.
func IsTemporary(err error) bool {
	var r *Refusal
	return !errors.As(err, &r) || r.Temporary
}

// NoAnswer is an attempt that took too long, or that its context ended.
type NoAnswer struct{ Cause error }

func (NoAnswer) Error() string   { return "no answer in time" }
func (e NoAnswer) Unwrap() error { return e.Cause }

// Bounds of one attempt to get one answer, connecting included.
const (
	shortestAttempt = 300 * time.Millisecond
	LongestAttempt  = 2 * time.Second
)

// AttemptLimit is how long an attempt may take for an entry of that TTL: one that
// hangs must leave time for others.
func AttemptLimit(ttl time.Duration) time.Duration {
	return min(max(ttl/3, shortestAttempt), LongestAttempt)
}

// RetryPause is the first pause between two attempts. Later ones grow: a server
// that is too busy is not to be made busier.
const (
	RetryPause   = 200 * time.Millisecond
	longestPause = time.Second
)

// jitter makes a pause longer by up to a half, so that not all come at once.
func jitter(pause time.Duration) time.Duration { return pause + rand.N(pause/2) }

func longer(pause time.Duration) time.Duration { return min(pause*3/2, longestPause) }

// Retry repeats attempts until one succeeds, fails for good, or ctx ends. store is
// the URL for the error.
func Retry(ctx context.Context, store string, attempt func() error) error {
	var last error
	for pause := RetryPause; ; pause = longer(pause) {
		err := attempt()
		if err == nil || IsFinal(err) {
			return err
		}
		// The last attempt is often cut short: its error says less.
		if last == nil || (ctx.Err() == nil && !isTimeout(err)) {
			last = err
		}
		Pause(ctx, jitter(pause))
		if ctx.Err() != nil {
			return &locks.OutageError{Store: store, Err: last}
		}
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Pause sleeps, not longer than ctx lasts.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
