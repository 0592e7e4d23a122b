package sql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
)

// Ask puts a question to the server; several statements give several answers.
type Ask func(ctx context.Context, text string) ([]Rows, error)

// Surroundings is what a dialect is told when it examines a server.
type Surroundings struct {
	Table      string // quoted; "" if it does not exist
	Waiters    int    // of a name keep a connection
	Quarantine time.Duration
}

// Examine implements locks.Store.
func (s *Store) Examine(ctx context.Context, ttl time.Duration) ([]locks.Finding, error) {
	x := &examination{store: s, session: &session{store: s}}
	defer x.session.idle()
	err := network.Reach(ctx, s.URL(), func(ctx context.Context) error {
		_, err := x.ask(ctx, "SELECT 1")
		return s.judge(err)
	})
	if err != nil {
		return nil, err
	}
	if !s.target.TLS && !s.target.Unix() {
		x.Append(network.Transport(s.target.hosts, "the names of locks", "?tls=on in the URL")...)
	}
	x.facts(ctx)
	there := x.table(ctx)
	around := Surroundings{Waiters: s.kept(), Quarantine: s.target.Quarantine}
	if there {
		around.Table = s.table
		x.mark(ctx)
		x.rehearse(ctx, ttl)
	}
	s.dialect.Examine(ctx, x.ask, around, &x.Findings)
	return x.Findings, nil
}

// examination collects findings.
type examination struct {
	locks.Findings
	store   *Store
	session *session
}

// ask is an Ask.
func (x *examination) ask(ctx context.Context, text string) ([]Rows, error) {
	bound, cancel := context.WithTimeout(ctx, lease.LongestAttempt)
	defer cancel()
	return x.session.ask(bound, text)
}

// facts finds out what the server says of itself, and whether connections are the
// server's own: a pooler gives each transaction another one.
func (x *examination) facts(ctx context.Context) {
	ask := func() (f facts, own bool, err error) {
		bound, cancel := context.WithTimeout(ctx, lease.LongestAttempt)
		defer cancel()
		f, err = x.session.facts(bound)
		return f, err == nil && x.session.conn.Owns(f.conn), err
	}
	f, own, err := ask()
	x.store.most.Store(f.most)
	if err != nil {
		x.Add(locks.Problem, "clock", "the server does not tell its own: "+err.Error(), "every step needs it", "")
		return
	}
	for i := 0; own && i < 3; i++ {
		if _, own, err = ask(); err != nil {
			return
		}
	}
	switch {
	case x.store.target.waiters == 0:
		x.Add(locks.Note, "wake-up", "?waiters=0: nobody is woken", "who waits looks again now and then", "leave ?waiters= away")
	case own:
		x.OK("wake-up", "connections are the server's own: waiters are woken")
	default:
		x.Add(locks.Note, "pooler", "there is a pooler or proxy between golock and the server that does not keep connections together",
			"locks are as safe as without it, but who waits cannot be woken and looks again now and then", "connect to the server itself")
	}
}

// table reports whether golock's table is there and tells what is wrong with it.
// Its text is given in any case.
func (x *examination) table(ctx context.Context) (there bool) {
	s := x.store
	f := locks.Finding{Level: locks.OK, Subject: "table", Text: s.DDL()}
	defer func() { x.Append(f) }()
	rows, err := x.ask(ctx, "SELECT format FROM "+s.table+" WHERE lock_key='' AND entry_id=''")
	switch verdict := s.verdict(err); {
	case err == nil && len(rows) == 1 && len(rows[0]) == 0:
		f.Level, f.What = locks.Note, s.target.table+" has lost its own row: somebody has emptied it"
		f.Why = "the next run makes the row again and grants nothing for as long as leases may last"
		return false
	case err == nil && (len(rows) != 1 || rows[0][0][0] != fmt.Sprint(format)):
		found := ""
		if len(rows) == 1 {
			found = rows[0][0][0]
		}
		f.Level, f.What = locks.Problem, (&FormatError{Table: s.target.table, Found: found}).Error()
		f.Why, f.Fix = "no slot can be had there", "the same version everywhere, or another ?table="
		return false
	case err == nil:
		f.What = fmt.Sprintf("%s is there, format %d", s.target.table, format)
		return true
	case verdict == NoTable:
		x.missing(ctx, &f)
	case verdict == NoRight:
		f.Level, f.What = locks.Problem, s.target.table+" may not be read: "+err.Error()
		f.Why, f.Fix = "no slot can be had there", "GRANT SELECT, INSERT, UPDATE, DELETE ON "+s.table+" to this user"
	default:
		f.Level, f.What = locks.Problem, s.target.table+" cannot be used: "+s.judge(err).Error()
		f.Why = "no slot can be had there"
	}
	return false
}

// missing is for a table that does not exist. golock doctor does not make it.
func (x *examination) missing(ctx context.Context, f *locks.Finding) {
	s := x.store
	f.What = s.target.table + " does not exist"
	may, err := s.dialect.MayCreate(ctx, x.ask, s.target.table)
	switch {
	case err != nil:
		f.Level, f.Why = locks.Problem, "whether this user may make it cannot be found out: "+err.Error()
	case may:
		f.What += " yet; the first run makes it"
		f.Why = "until then rights and times cannot be rehearsed here"
		f.Level = locks.Note
		return
	default:
		f.Level, f.What = locks.Problem, f.What+", and this user may not make it"
		f.Why = "no slot can be had"
	}
	f.Fix = "let somebody who may run the lines below, and grant this user SELECT, INSERT, UPDATE and DELETE on " + s.table
}

// mark finds out whether a table that is dropped would be known for that. Where golock
// may not make it again, its loss is noticed anyhow.
func (x *examination) mark(ctx context.Context) {
	s := x.store
	_, err := x.ask(ctx, "SELECT COUNT(*) FROM "+s.mark())
	if s.verdict(err) != NoTable {
		return
	}
	if may, err := s.dialect.MayCreate(ctx, x.ask, s.target.table); err != nil || !may {
		return
	}
	x.Append(locks.Finding{
		Level: locks.Note, Subject: "mark", What: s.markName() + " does not exist", Why: s.unmarked(),
		Fix:  "let somebody who may run the line below, and grant this user SELECT on " + s.mark(),
		Text: "CREATE TABLE " + s.mark() + " (made BIGINT PRIMARY KEY);",
	})
}

// rehearse does what a run does, and removes the name's rows.
func (x *examination) rehearse(ctx context.Context, ttl time.Duration) {
	s := x.store
	r := network.Rehearse(ctx, s, s.target.Quarantine)
	x.Append(r.Finding(ttl))
	text := fmt.Sprintf("START TRANSACTION READ WRITE;DELETE FROM %s WHERE lock_key='%s';COMMIT", s.table, r.Ref.Key)
	_, err := x.ask(context.WithoutCancel(ctx), text)
	if s.verdict(err) == NoRight {
		x.Add(locks.Problem, "rights", "DELETE is missing: "+err.Error(), "who is over cannot be removed: the table grows, and golock clean fails",
			"GRANT DELETE ON "+s.table+" to this user")
	}
}

// Settings reads an answer with rows of a name and a value.
func Settings(rows []Rows) map[string]string {
	all := make(map[string]string)
	for _, set := range rows {
		for _, r := range set {
			if len(r) == 2 {
				all[strings.ToLower(r[0])] = r[1]
			}
		}
	}
	return all
}

// Forgotten says what it means that a server can lose what it has committed.
func (s Surroundings) Forgotten() string {
	return fmt.Sprintf("slots that were given last are forgotten. Who holds one puts it back with the next renewal, after a third of the TTL at most; "+
		"for %v after the restart (?quarantine=) nothing is granted, but then another run may be let in. What --hold keeps is lost", s.Quarantine)
}

// Room judges how many connections there may be.
func Room(found *locks.Findings, most, used, waiters int) {
	what := fmt.Sprintf("at most %d, %d in use; up to %d waiters of each name keep one, and each holder that renews", most, used, waiters)
	if most > 0 && most-used < waiters+2 {
		found.Add(locks.Note, "connections", what, "a queue can use up what is left: others are turned away then, and renewals with them",
			"more connections, or a smaller ?waiters= in the URL")
		return
	}
	found.OK("connections", what)
}
