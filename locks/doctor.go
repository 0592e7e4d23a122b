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

// Finding is one thing that was found out about a machine or a store. The names
// of its fields in JSON are what golock doctor --json prints.
type Finding struct {
	Level   Level  `json:"level"`
	Subject string `json:"subject"` // a word or two, always the same for the same thing
	What    string `json:"what"`
	Why     string `json:"why,omitempty"`  // it matters
	Fix     string `json:"fix,omitempty"`  // what the user can do
	Text    string `json:"text,omitempty"` // lines to copy
}

// Findings are collected one by one.
type Findings []Finding

// Add adds a finding, once.
func (f *Findings) Add(level Level, subject, what, why, fix string) {
	f.Append(Finding{Level: level, Subject: subject, What: what, Why: why, Fix: fix})
}

// OK adds that something is as it should be.
func (f *Findings) OK(subject, what string) { f.Add(OK, subject, what, "", "") }

// Append adds findings, each once: several nodes of a cluster may be alike.
func (f *Findings) Append(found ...Finding) {
	for _, one := range found {
		if !slices.Contains(*f, one) {
			*f = append(*f, one)
		}
	}
}

// Row is a row in the table of a subject: what may be read there, and what that means. The row of the
// level OK is what is wanted.
type Row struct {
	When  bool // this was read
	Level Level
	What  string // what was read, for people
	Why   string // why it matters, if it is not what is wanted
	Fix   string // how to get what is wanted
	Text  string // lines to copy for that
}

// Judge adds the first row that was read as the finding about a subject. If none was, there is nothing
// to tell of the subject.
func (f *Findings) Judge(subject string, table ...Row) (level Level) {
	for _, row := range table {
		if row.When {
			f.Append(Finding{Level: row.Level, Subject: subject, What: row.What, Why: row.Why, Fix: row.Fix, Text: row.Text})
			return row.Level
		}
	}
	return OK
}

// TwoServers says what it means that grants do not wait for the server that may take over.
const TwoServers = "two may run for as long as two servers accept writes: one that is cut off goes on granting and " +
	"renewing beside the one that took over. GOLOCK_FENCE does not help then: each gives fences of its own"

const (
	renewals       = 5                // in a rehearsal
	rehearsalTTL   = 5 * time.Second  // after which nothing is left of one that was killed
	rehearsalLimit = 10 * time.Second // in which it must be done
)

// Rehearse takes, renews and gives back the slot of a name made up for it, and forgets the
// name, which may fail. ttl is that of the runs in question. A server that has just come back
// grants nothing before its quarantine is over.
func Rehearse(ctx context.Context, s Store, ttl, quarantine time.Duration) (f Finding, forgotten error) {
	ctx, cancel := context.WithTimeout(ctx, rehearsalLimit+quarantine)
	defer cancel()
	ref, err := NewRef("golock doctor")
	if err != nil {
		return (&rehearsal{}).finding(err, ttl), nil
	}
	name := "golock-doctor-" + ref.ID.String()
	ref.Key = KeyOf(name)
	tried, err := rehearse(ctx, s, Request{Ref: ref, Name: name, Claim: Claim{Weight: 1, Max: 1}, TTL: rehearsalTTL, Command: []string{"golock", "doctor"}})
	return tried.finding(err, ttl), s.Abilities().Queue.Forget(context.WithoutCancel(ctx), name)
}

// rehearsal has the times of the steps of a run.
type rehearsal struct {
	join, renew time.Duration // renew is the median of the renewals, or 0 if the store has no leases
	distance    Distance
}

// rehearse makes the steps of a run.
func rehearse(ctx context.Context, s Store, q Request) (tried rehearsal, err error) {
	began := BootTime()
	ticket, err := s.Join(ctx, q)
	if err != nil {
		return tried, fmt.Errorf("taking a slot: %w", err)
	}
	lease, err := ticket.Wait(ctx)
	if err != nil {
		return tried, fmt.Errorf("waiting for a slot: %w", err)
	}
	tried.join = BootTime().Sub(began)
	if lease.Term().Ends() {
		tried.renew, err = timeOfRenewal(ctx, lease)
		tried.distance = lease.Term().Distance
	}
	released, cancel := context.WithTimeout(context.WithoutCancel(ctx), rehearsalTTL)
	defer cancel()
	if failed := lease.Release(released); err == nil && failed != nil {
		err = fmt.Errorf("giving the slot back: %w", failed)
	}
	return tried, err
}

// timeOfRenewal gives the median time of a renewal.
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

// finding tells how a rehearsal went.
func (r *rehearsal) finding(err error, ttl time.Duration) Finding {
	join, renew := r.join, r.renew
	term := Term{TTL: ttl, Distance: r.distance}
	limit := term.RenewalLimit() // after this time a renewal is given up
	nearer := "a store that is nearer"
	if renew < time.Second { // at a store that is near, no TTL makes limit longer than a second
		nearer = fmt.Sprintf("--ttl of at least %v, or a store that is nearer", (20 * renew).Round(time.Second))
	}
	var found Findings
	found.Judge("rehearsal",
		Row{
			When: err != nil, Level: Problem,
			What: fmt.Sprint(err),
			Why:  "a run would fail at the same step",
		},
		Row{
			When: term.IsFar(), Level: Problem,
			What: fmt.Sprintf("a round trip takes %v, a renewal that has to connect first %v: too long for a TTL of %v",
				short(r.distance.Trip), short(r.distance.Renewal()), ttl),
			Why: "the lease of a command may run out when its connection is lost",
			Fix: fmt.Sprintf("--ttl of at least %v, or a store that is nearer", r.distance.LeastTTL()),
		},
		Row{
			When: renew > limit, Level: Problem,
			What: fmt.Sprintf("a renewal takes %v, and is given up after %v", short(renew), limit),
			Why:  "leases run out under commands that are running",
			Fix:  nearer,
		},
		Row{
			When: renew > limit/4, Level: Note,
			What: fmt.Sprintf("a renewal takes %v; with a TTL of %v one is given up after %v", short(renew), ttl, limit),
			Why:  "little is left for a bad moment of network or server",
			Fix:  "a longer --ttl, or a store that is nearer",
		},
		Row{
			When: renew > 0, Level: OK,
			What: fmt.Sprintf("a slot was taken (%v), its lease renewed (%v, the median of %d) and given back", short(join), short(renew), renewals),
		},
		Row{
			When: true, Level: OK,
			What: fmt.Sprintf("a slot was taken (%v) and given back", short(join)),
		},
	)
	return found[0]
}

// short is a duration in as many digits as mean something.
func short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
