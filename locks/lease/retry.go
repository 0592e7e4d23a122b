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
	Temporary bool   // for those that have an entry: a server gets memory again
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

// Invalid is the refusal of a lock with invalid entries; nil if there are none. It is temporary: who
// holds or waits goes on until somebody has removed them.
func Invalid(entries []locks.InvalidEntry) error {
	if len(entries) == 0 {
		return nil
	}
	return &Refusal{Err: &locks.InvalidError{Entries: entries}, Temporary: true}
}

// IsFinal reports whether there is no point in another attempt.
func IsFinal(err error) bool {
	var r *Refusal
	var p *locks.PanicError
	return errors.As(err, &r) || errors.As(err, &p)
}

// IsTemporary reports whether an entry that exists should try again: an outage never ends
// the waiting.
func IsTemporary(err error) bool {
	var r *Refusal
	return !IsFinal(err) || errors.As(err, &r) && r.Temporary
}

// NoAnswer is the error of an attempt that took too long or was cancelled.
type NoAnswer struct{ Cause error }

func (NoAnswer) Error() string   { return "no answer in time" }
func (e NoAnswer) Unwrap() error { return e.Cause }

// Bounds of one attempt, with connecting.
const (
	shortestAttempt = 300 * time.Millisecond
	LongestAttempt  = 2 * time.Second
)

// AttemptLimit bounds an attempt for an entry of that TTL: it must leave time for others.
func AttemptLimit(ttl time.Duration) time.Duration {
	return min(max(ttl/3, shortestAttempt), LongestAttempt)
}

// RetryPause is the first pause between two attempts. Later ones grow, to spare a busy
// server.
const (
	RetryPause   = 200 * time.Millisecond
	longestPause = time.Second
)

// jitter lengthens a pause by up to a half, so that not all come at once.
func jitter(pause time.Duration) time.Duration { return pause + rand.N(pause/2) }

func longer(pause time.Duration) time.Duration { return min(pause*3/2, longestPause) }

// Retry repeats attempts until one succeeds, fails for good (isFinal), or ctx ends. store is
// the URL in errors.
func Retry(ctx context.Context, store string, isFinal func(error) bool, attempt func() error) error {
	var last error
	for pause := RetryPause; ; pause = longer(pause) {
		err := attempt()
		if err == nil || isFinal(err) {
			return err
		}
		var timeout interface{ Timeout() bool }
		if last == nil || ctx.Err() == nil && !(errors.As(err, &timeout) && timeout.Timeout()) { // a timeout says less
			last = err
		}
		Pause(ctx, jitter(pause))
		if ctx.Err() != nil {
			return &locks.OutageError{Store: store, Err: last, Answered: IsFinal(last)}
		}
	}
}

// request makes attempts at a step until one is answered. The answer is Doubtful, too, if
// an attempt that was not refused failed: it may have done the step.
func request(ctx context.Context, store string, e Entry, s Step) (a Answer, sent locks.Instant, err error) {
	doubtful, isFinal := false, IsFinal
	if s != Join { // there is an entry
		isFinal = func(err error) bool { return !IsTemporary(err) }
	}
	err = Retry(ctx, store, isFinal, func() (err error) {
		a, sent, err = e.Ask(ctx, s)
		doubtful = doubtful || a.Doubtful || err != nil && !IsFinal(err)
		return err
	})
	a.Doubtful = doubtful
	return a, sent, err
}

// Await runs f, which may take longer than ctx lasts, and waits for its result until ctx
// ends.
func Await[T any](ctx context.Context, f func() (T, error)) (none T, err error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() { done <- r }()
		defer locks.Recover(&r.err)
		r.value, r.err = f()
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, NoAnswer{Cause: context.Cause(ctx)}
	}
}

// Pause sleeps until ctx ends, or for d.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
