package sql

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
)

// Examination is what golock doctor finds out about a server.
type Examination struct {
	locks.Findings
	Table   string // quoted
	session *session
}

// Examine implements locks.Store.
func (s *Store) Examine(ctx context.Context, ttl time.Duration) ([]locks.Finding, error) {
	x := &Examination{Table: s.table, session: &session{store: s}}
	defer x.session.disconnect()
	for range 4 { // a pooler may give each question another connection
		err := x.session.retryCall(ctx, func(ctx context.Context) error {
			_, err := x.session.askFacts(ctx)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if !s.target.TLS && s.target.Socket == "" {
		x.Append(network.Transport(s.target.hosts, "the names of locks", "?tls=on in the URL")...)
	}
	if x.hasTable(ctx) {
		x.mark(ctx)
		x.takeTestLock(ctx, ttl)
	}
	x.wakeUp()
	s.dialect.Examine(ctx, x)
	return x.Findings, nil
}

// Ask puts a question to the server; several statements give several answers.
func (x *Examination) Ask(ctx context.Context, text string) ([]Rows, error) {
	bound, cancel := context.WithTimeout(ctx, lease.LongestAttempt)
	defer cancel()
	return x.session.askAny(bound, text)
}

// hasTable judges whether golock's table exists. It returns whether the table can be tested with a lock. golock
// doctor does not make the table, but shows the statements that do.
func (x *Examination) hasTable(ctx context.Context) bool {
	s := x.session.store
	answers, err := x.Ask(ctx, "SELECT format FROM "+s.table+" WHERE lock_key='' AND entry_id=''")
	kind := s.kindOf(err)
	if err != nil && kind != NoTable {
		return true
	}
	var refused error
	if kind == NoTable {
		refused = x.tryCreate(ctx)
	}
	isEmpty := len(answers) != 1 || len(answers[0]) == 0
	level := x.Judge("table",
		locks.Row{
			When: refused != nil, Level: locks.Problem,
			What: fmt.Sprintf("%s does not exist, and this user cannot make it: %v", s.target.table, refused),
			Why:  "no slot can be taken",
			Fix: "let somebody who may run the lines below, and grant this user " +
				"SELECT, INSERT, UPDATE and DELETE on " + s.table,
			Text: s.DDL(),
		},
		locks.Row{
			When: kind == NoTable, Level: locks.Note,
			What: s.target.table + " does not exist yet; the first run makes it",
			Why:  "until then rights and times cannot be tested here",
			Text: s.DDL(),
		},
		locks.Row{
			When: isEmpty, Level: locks.Note,
			What: s.target.table + " lacks its own row: somebody has emptied the table",
			Why:  "the next run makes the row again and grants nothing for as long as leases may last",
			Text: s.DDL(),
		},
		locks.Row{When: true, Level: locks.OK, What: s.target.table + " is there", Text: s.DDL()},
	)
	return level == locks.OK
}

// tryCreate returns the error with which the server would refuse to make the table, which does not exist, or
// nil. It does not make the table.
func (x *Examination) tryCreate(ctx context.Context) error {
	s := x.session.store
	nothing := s.quote(fmt.Sprintf("%s_%x", s.target.table, rand.Uint32()))
	_, err := x.Ask(ctx, fmt.Sprintf(s.dialect.TryCreate, s.table, nothing))
	switch s.kindOf(err) {
	case NoTable, Exists: // Exists means that somebody has made it in between
		return nil
	}
	return err
}

// mark judges whether the mark exists, by which golock notices that its table was dropped. Where golock may not
// make the table again, it notices that without the mark.
func (x *Examination) mark(ctx context.Context) {
	s := x.session.store
	name := s.quote(s.markName())
	_, err := x.Ask(ctx, "SELECT COUNT(*) FROM "+name)
	isMissing := s.kindOf(err) == NoTable
	if isMissing {
		isMissing = x.tryCreate(ctx) == nil
	}
	x.Judge("mark", locks.Row{
		When: isMissing, Level: locks.Note,
		What: s.markName() + " does not exist",
		Why:  s.unmarked(),
		Fix:  "let somebody who may run the line below, and grant this user SELECT on " + name,
		Text: "CREATE TABLE " + name + " (made BIGINT PRIMARY KEY);",
	})
}

// takeTestLock takes a test lock, and judges whether its rows can be removed afterwards.
func (x *Examination) takeTestLock(ctx context.Context, ttl time.Duration) {
	s := x.session.store
	f, err := locks.TryTestLock(ctx, s, ttl, s.target.Quarantine)
	x.Append(f)
	x.Judge("rights", locks.Row{
		When: !lease.IsTemporary(err), Level: locks.Problem,
		What: fmt.Sprintf("expired rows cannot be removed: %v", err),
		Why:  "the table grows, and golock clean fails",
		Fix:  "GRANT DELETE ON " + s.table + " to this user",
	})
}

// wakeUp judges whether waiters can be woken: a pooler or proxy prevents that.
func (x *Examination) wakeUp() {
	s := x.session.store
	if s.target.waiters != 0 && s.noNotify.Load() {
		x.Add(locks.Note, "pooler", poolerText,
			"locks stay safe, but waiters cannot be woken and only look again now and then",
			"connect to the server itself")
		return
	}
	x.Judge("wake-up",
		locks.Row{
			When: s.target.waiters == 0, Level: locks.Note,
			What: "?waiters=0: nobody is woken",
			Why:  "waiters only look again now and then",
			Fix:  "remove ?waiters=",
		},
		locks.Row{When: true, Level: locks.OK, What: "connections are the server's own: waiters are woken"},
	)
}

// Settings sends statements that give rows of two columns, the name and the value of a setting. It returns the
// values by the names in lower case. If the server refuses, Settings adds a finding and returns the error.
func (x *Examination) Settings(ctx context.Context, text string) (all map[string]string, err error) {
	answers, err := x.Ask(ctx, text)
	if err != nil {
		x.Add(locks.Note, "settings", "cannot be seen: "+err.Error(),
			"it is not known whether the server keeps what it has committed", "")
	}
	all = make(map[string]string)
	for _, rows := range answers {
		for _, r := range rows {
			if len(r) == 2 {
				all[strings.ToLower(r[0])] = r[1]
			}
		}
	}
	return all, err
}

// Version judges the version of the server. product comes before the version in the finding; least is the oldest
// version for which golock is made.
func (x *Examination) Version(product, version, least string) {
	var is, want [2]int
	what := product + locks.Printable(version, 60)
	n, _ := fmt.Sscanf(version, "%d.%d", &is[0], &is[1])
	_, _ = fmt.Sscanf(least, "%d.%d", &want[0], &want[1])
	x.Judge("version",
		locks.Row{
			When: n > 0 && slices.Compare(is[:], want[:]) < 0, Level: locks.Problem, What: what,
			Why: "golock is made for " + least + " and later",
			Fix: "a newer server",
		},
		locks.Row{When: true, Level: locks.OK, What: what},
	)
}

// Forgotten returns, for the user, what happens to locks if a server loses what it has committed.
func (x *Examination) Forgotten() string {
	return fmt.Sprintf("slots that were given last are forgotten. Who holds one puts it back with the next renewal, "+
		"after a third of the TTL at most; for %v after the restart (?quarantine=) nothing is granted, "+
		"but then another run may be let in. What --hold keeps is lost", x.session.store.target.Quarantine)
}

// Waiters returns how many waiters of a name keep a connection.
func (x *Examination) Waiters() int { return x.session.store.keptConns() }

// Room judges how many more connections there may be. most is the largest number, 0 if it is not known; used is
// the present number.
func (x *Examination) Room(most, used int) {
	waiters := x.Waiters()
	what := fmt.Sprintf("at most %d, %d in use; up to %d waiters of each name keep one, and each holder that renews",
		most, used, waiters)
	x.Judge("connections",
		locks.Row{
			When: most > 0 && most-used < waiters+2, Level: locks.Note, What: what,
			Why: "a queue can use up the rest: the server then refuses others, also renewals",
			Fix: "more connections, or a smaller ?waiters= in the URL",
		},
		locks.Row{When: true, Level: locks.OK, What: what},
	)
}
