package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/queue"
)

// Refusal is the error of a store that has answered, and does not do what it was asked.
type Refusal struct {
	Err  error
	Hint string // what the user can do
	Kind RefusalKind
}

// RefusalKind says what another attempt may come to. An error that is no Refusal is an outage: the
// store was not reached, or did not answer.
type RefusalKind int

// The kinds of refusals.
const (
	ForGood      RefusalKind = iota // another attempt is refused too
	ForNewcomers                    // the store is full or has an invalid entry: only a request with an entry is repeated
	Passing                         // the store has no connection left, starts, or is busy: any request is repeated
	Standby                         // the server may not write: another server is the store
)

func (e *Refusal) Error() string {
	if e.Hint == "" {
		return e.Err.Error()
	}
	return strings.TrimRight(e.Err.Error(), ". ") + " (" + e.Hint + ")"
}

func (e *Refusal) Unwrap() error { return e.Err }

// LoginHint is for a server that refuses a login.
const LoginHint = "user and password stand before the host, USER:PASSWORD@HOST, best in the file of --store-file"

// Invalid is the refusal of a lock with invalid entries, or nil if there are none. Entries that hold or
// wait go on until somebody has removed the invalid ones.
func Invalid(entries []locks.InvalidEntry) error {
	if len(entries) == 0 {
		return nil
	}
	return &Refusal{Err: &locks.InvalidError{Entries: entries}, Kind: ForNewcomers}
}

// IsFinal reports whether a request without an entry should not be repeated.
func IsFinal(err error) bool {
	kind, refused := kindOf(err)
	isFinalRefusal := refused && (kind == ForGood || kind == ForNewcomers)
	return isFinalRefusal || errors.As(err, new(*locks.PanicError))
}

// IsTemporary reports whether the request of an entry that exists should be repeated: an outage never
// ends the waiting.
func IsTemporary(err error) bool {
	kind, refused := kindOf(err)
	return !IsFinal(err) || refused && kind == ForNewcomers
}

// IsPassing reports whether the store has answered, and refuses for a temporary reason.
func IsPassing(err error) bool {
	kind, refused := kindOf(err)
	return refused && kind == Passing
}

func kindOf(err error) (kind RefusalKind, refused bool) {
	r, refused := errors.AsType[*Refusal](err)
	if refused {
		kind = r.Kind
	}
	return kind, refused
}

// NoAnswer is the error of an attempt that took too long or was cancelled.
type NoAnswer struct{ Cause error }

func (NoAnswer) Error() string   { return "no answer in time" }
func (e NoAnswer) Unwrap() error { return e.Cause }

// The limits of one attempt, connecting included.
const (
	shortestAttempt = 300 * time.Millisecond
	LongestAttempt  = 2 * time.Second

	// NewcomerAttempt is the limit for a request that is not in the queue yet. Hundreds of clients may come
	// at once. If they gave up and connected anew, the server would serve nobody: its process and its login
	// for the client would be wasted, and the client would be the last one again.
	NewcomerAttempt = 60 * time.Second

	// ShortAttempt is the limit for a newcomer's attempt at one of several hosts: another one may answer.
	ShortAttempt = 4 * time.Second
)

// AttemptLimit is the limit of an attempt for an entry with that TTL. It leaves time for more attempts. If the
// store is far away, it is long enough to connect and to repeat once what got lost.
func AttemptLimit(ttl time.Duration, d locks.Distance) time.Duration {
	limit := min(max(ttl/3, shortestAttempt), LongestAttempt)
	return max(limit, min(2*d.Renewal(), NewcomerAttempt))
}

// SlowedAttempt is LongestAttempt on a machine whose processes run slower by a factor (locks.Request.Slowdown).
func SlowedAttempt(slowdown float64) time.Duration {
	return time.Duration(min(float64(LongestAttempt)*slowdown, float64(NewcomerAttempt)))
}

// RetryPause is the longest first pause between two attempts. Later pauses grow up to longestPause, to
// spare a busy server.
const (
	RetryPause    = 200 * time.Millisecond
	shortestPause = 10 * time.Millisecond
	longestPause  = 4 * time.Second
)

// backoff gives the pauses between attempts. A pause is random between shortestPause and a limit that grows. So
// hundreds of clients that were refused at the same moment come back one by one (Brooker, Exponential Backoff
// And Jitter, https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
type backoff struct{ limit time.Duration }

// next returns the next pause. Later pauses may be longer.
func (b *backoff) next() time.Duration {
	limit := max(b.limit, RetryPause)
	b.limit = min(2*limit, longestPause)
	return randomPause(limit)
}

func randomPause(limit time.Duration) time.Duration { return shortestPause + rand.N(limit) }

// Retry repeats attempts until one succeeds, fails for good, or ctx ends. store is the URL in errors.
func Retry(ctx context.Context, store string, attempt func() error) error {
	return retry(ctx, store, IsFinal, noLimit, attempt)
}

// retry is Retry with a condition that ends it, and with the patience of a request.
func retry(ctx context.Context, store string, isFinal func(error) bool, limit *patience, attempt func() error) error {
	var last error
	var pauses backoff
	for {
		err := attempt()
		if err == nil || isFinal(err) {
			return err
		}
		if IsPassing(err) {
			limit.refused()
		}
		if last == nil || ctx.Err() == nil && !isTimeout(err) { // any other error says more than a timeout
			last = err
		}
		Pause(ctx, pauses.next())
		if ctx.Err() != nil {
			return outageOf(store, last)
		}
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// outageOf returns the error of a store that is not asked any longer.
func outageOf(store string, err error) *locks.OutageError {
	_, refused := kindOf(err)
	return &locks.OutageError{Store: store, Err: err, Answered: refused}
}

// request makes attempts at a step until one is answered or ctx ends. The answer is Doubtful if an attempt
// failed without a final refusal: it may have done the step.
func request(ctx context.Context, store string, e Entry, s queue.Step) (a Answer, sent locks.Instant, err error) {
	return requestWithin(ctx, store, e, s, noLimit)
}

// requestWithin is request with a patience.
func requestWithin(
	ctx context.Context, store string, e Entry, s queue.Step, limit *patience,
) (a Answer, sent locks.Instant, err error) {
	doubtful, isFinal := false, IsFinal
	if s.HasEntry() {
		isFinal = func(err error) bool { return !IsTemporary(err) }
	}
	err = retry(ctx, store, isFinal, limit, func() (err error) {
		a, sent, err = e.Ask(limit.contextOfAttempt(ctx), s)
		doubtful = doubtful || a.Doubtful || err != nil && !IsFinal(err)
		return err
	})
	a.Doubtful = doubtful
	return a, sent, err
}

// Await runs f and waits for its result until ctx ends. f may run on afterwards.
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

// Pause sleeps for d, or until ctx ends if that is sooner.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
