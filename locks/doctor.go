package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Level says how much a Finding matters.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Note    Level = "note"    // good to know; every promise holds
	Problem Level = "problem" // a promise does not hold here
)

// Finding is a fact about a machine or a store. golock doctor --json prints the names of its fields.
type Finding struct {
	Level   Level  `json:"level"`
	Subject string `json:"subject"` // a word or two, equal for all findings about one subject
	What    string `json:"what"`
	Why     string `json:"why,omitempty"`  // why the finding matters
	Fix     string `json:"fix,omitempty"`  // what the user can do
	Text    string `json:"text,omitempty"` // lines to copy
}

// Findings are collected one by one.
type Findings []Finding

// Add adds a finding, unless it was added before.
func (f *Findings) Add(level Level, subject, what, why, fix string) {
	f.Append(Finding{Level: level, Subject: subject, What: what, Why: why, Fix: fix})
}

// OK adds the finding that a subject is as it should be.
func (f *Findings) OK(subject, what string) { f.Add(OK, subject, what, "", "") }

// Append adds findings that were not added before: several nodes of a cluster may have the same.
func (f *Findings) Append(found ...Finding) {
	for _, one := range found {
		if !slices.Contains(*f, one) {
			*f = append(*f, one)
		}
	}
}

// Row is a row in the table of a subject: a possible state, and the finding about it. The row of the
// level OK is the wanted state.
type Row struct {
	When  bool // the subject is in this state
	Level Level
	What  string // the state, in words for the user
	Why   string // why the state matters, if it is not the wanted one
	Fix   string // how to get the wanted state
	Text  string // lines to copy for the fix
}

// Judge adds the finding of the first row that has When, and returns its level. Without such a row it adds
// nothing and returns OK.
func (f *Findings) Judge(subject string, table ...Row) (level Level) {
	for _, row := range table {
		if row.When {
			f.Append(Finding{Level: row.Level, Subject: subject, What: row.What, Why: row.Why, Fix: row.Fix, Text: row.Text})
			return row.Level
		}
	}
	return OK
}

// TwoServers tells the user what may happen if grants do not wait for the server that may take over.
const TwoServers = "two may run for as long as two servers accept writes: one that is cut off goes on granting and " +
	"renewing beside the one that took over. GOLOCK_FENCE does not help then: each gives fences of its own"

const (
	renewals      = 5                // the number of renewals of the test lock
	testLockTTL   = 5 * time.Second  // after this time the store has dropped the entry of a killed test lock
	testLockLimit = 10 * time.Second // the time in which all steps must be done
)

// TryTestLock takes, renews and gives back the slot of a name that it makes up, and then makes the store
// forget the name; forgetErr is the error of that. ttl is the TTL of the user's runs. quarantine is added
// to the time limit, because a server that has just come back grants nothing until it is over.
func TryTestLock(ctx context.Context, s Store, ttl, quarantine time.Duration) (f Finding, forgetErr error) {
	ctx, cancel := context.WithTimeout(ctx, testLockLimit+quarantine)
	defer cancel()
	ref, err := NewRef("golock doctor")
	if err != nil {
		return (&testLock{}).finding(err, ttl), nil
	}
	name := "golock-doctor-" + ref.ID.String()
	ref.Key = KeyOf(name)
	tried, err := takeTestLock(ctx, s, Request{
		Ref: ref, Name: name, Claim: Claim{Weight: 1, Max: 1}, TTL: testLockTTL, Command: []string{"golock", "doctor"},
	})
	forgetErr = s.Abilities().Queue.Forget(context.WithoutCancel(ctx), name)
	return tried.finding(err, ttl), forgetErr
}

// testLock is how long the steps of a run with the test lock took.
type testLock struct {
	join, renew time.Duration // renew is the median of the renewals, or 0 if the store has no leases
	distance    Distance
}

// takeTestLock makes the steps of a run.
func takeTestLock(ctx context.Context, s Store, q Request) (tried testLock, err error) {
	began := BootTime()
	admission, err := s.Join(ctx, q)
	if err != nil {
		return tried, fmt.Errorf("taking a slot: %w", err)
	}
	lease, err := admission.Wait(ctx)
	if err != nil {
		return tried, fmt.Errorf("waiting for a slot: %w", err)
	}
	tried.join = BootTime().Sub(began)
	if lease.Term().Ends() {
		tried.renew, err = timeOfRenewal(ctx, lease)
		tried.distance = lease.Term().Distance
	}
	releaseCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), testLockTTL)
	defer cancel()
	releaseErr := lease.Release(releaseCtx)
	if err == nil && releaseErr != nil {
		err = fmt.Errorf("giving the slot back: %w", releaseErr)
	}
	return tried, err
}

// timeOfRenewal returns the median time of a renewal.
func timeOfRenewal(ctx context.Context, l Lease) (time.Duration, error) {
	var took [renewals]time.Duration
	for i := range took {
		began := BootTime()
		_, err := l.Renew(ctx)
		if err != nil && !errors.Is(err, ErrLost) { // a run tries again, too
			_, err = l.Renew(ctx)
		}
		if err != nil {
			return 0, fmt.Errorf("renewing the lease: %w", err)
		}
		took[i] = BootTime().Sub(began)
	}
	slices.Sort(took[:])
	return took[renewals/2], nil
}

// finding returns the finding of the test lock.
func (t *testLock) finding(err error, ttl time.Duration) Finding {
	join, renew := t.join, t.renew
	term := Term{TTL: ttl, Distance: t.distance}
	limit := term.RenewalLimit() // after this time a renewal is given up
	fix := "a store that is nearer"
	if renew < time.Second { // otherwise no TTL helps: the limit of a near store is at most a second (NearRenewalLimit)
		fix = fmt.Sprintf("--ttl of at least %v, or a store that is nearer", (20 * renew).Round(time.Second))
	}
	var found Findings
	found.Judge("test lock",
		Row{
			When: err != nil, Level: Problem,
			What: fmt.Sprint(err),
			Why:  "a run would fail at the same step",
		},
		Row{
			When: term.IsFar(), Level: Problem,
			What: fmt.Sprintf("a round trip takes %v, a renewal that has to connect first %v: too long for a TTL of %v",
				short(t.distance.Trip), short(t.distance.Renewal()), ttl),
			Why: "the lease of a command may run out when its connection is lost",
			Fix: fmt.Sprintf("--ttl of at least %v, or a store that is nearer", t.distance.LeastTTL()),
		},
		Row{
			When: renew > limit, Level: Problem,
			What: fmt.Sprintf("a renewal takes %v, and is given up after %v", short(renew), limit),
			Why:  "leases run out under commands that are running",
			Fix:  fix,
		},
		Row{
			When: renew > limit/4, Level: Note,
			What: fmt.Sprintf("a renewal takes %v; with a TTL of %v one is given up after %v", short(renew), ttl, limit),
			Why:  "little is left for a bad moment of network or server",
			Fix:  "a longer --ttl, or a store that is nearer",
		},
		Row{
			When: renew > 0, Level: OK,
			What: fmt.Sprintf("a slot was taken (%v), its lease renewed (%v, the median of %d) and given back",
				short(join), short(renew), renewals),
		},
		Row{
			When: true, Level: OK,
			What: fmt.Sprintf("a slot was taken (%v) and given back", short(join)),
		},
	)
	return found[0]
}

// short rounds a duration to the digits that mean something.
func short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
