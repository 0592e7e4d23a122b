package locktest

import (
	"testing"
	"time"

	"golock/locks"
)

// Change changes a request that NewRequest makes.
type Change func(*locks.Request)

func NoWait(r *locks.Request) { r.NoWait = true }

func Limit(n int) Change { return func(r *locks.Request) { r.Claim.Max = n } }

func Weight(n int) Change { return func(r *locks.Request) { r.Claim.Weight = n } }

func Priority(n int) Change { return func(r *locks.Request) { r.Claim.Priority = n } }

func Note(text string) Change { return func(r *locks.Request) { r.Note = text } }

func TTL(d time.Duration) Change { return func(r *locks.Request) { r.TTL = d } }

// Within sets the runs that enclose the request.
func Within(refs ...locks.Ref) Change { return func(r *locks.Request) { r.Within = refs } }

func Hold(d time.Duration) Change { return func(r *locks.Request) { r.Hold = d } }

// HoldLater asks for a hold that begins with Lease.Hold.
func HoldLater(d time.Duration) Change {
	return func(r *locks.Request) { r.Hold, r.HoldsLater = d, true }
}

// Next names the lock that the run takes next.
func Next(name string) Change { return func(r *locks.Request) { r.Next = name } }

// MaxQueue sets how many waiters there may be.
func MaxQueue(n int) Change { return func(r *locks.Request) { r.MaxQueue = &n } }

func Replace(whom locks.Replacement) Change { return func(r *locks.Request) { r.Replace = whom } }

// The engines' own tests use these functions. Each function fails the test if the store does not do
// what its name says.

// LongTTL is a lease time that a test does not outlive, even on a slow machine: nothing renews such
// a lease.
const LongTTL = time.Minute

// NewRequest returns a request for the only slot of a lock, with the changes made to it.
func NewRequest(t testing.TB, name string, changes ...Change) locks.Request {
	t.Helper()
	ref, err := locks.NewRef(name)
	if err != nil {
		t.Fatal(err)
	}
	r := locks.Request{Ref: ref, Name: name, Claim: locks.Claim{Weight: 1, Max: 1}, TTL: LongTTL, Command: []string{"job", "of a test"}}
	for _, c := range changes {
		c(&r)
	}
	return r
}
