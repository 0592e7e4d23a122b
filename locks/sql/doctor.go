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

// Examination is what golock doctor finds out about a server.
type Examination struct {
	locks.Findings
	Name    string // of the table, as in the URL
	Table   string // the same, quoted; "" if it does not exist
	store   *Store
	session *session
}

// Examine implements locks.Store.
func (s *Store) Examine(ctx context.Context, ttl time.Duration) ([]locks.Finding, error) {
	x := &Examination{Name: s.target.table, store: s, session: &session{store: s}}
	defer x.session.disconnect()
	err := x.session.once(ctx, func(ctx context.Context) error {
		_, err := x.session.facts(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !s.target.TLS && s.target.Socket == "" {
		x.Append(network.Transport(s.target.hosts, "the names of locks", "?tls=on in the URL")...)
	}
	x.connections(ctx)
	table := x.table(ctx)
	x.Append(table)
	if table.Level == locks.OK {
		x.Table = s.table
		x.mark(ctx)
		x.rehearse(ctx, ttl)
	}
	s.dialect.Examine(ctx, x)
	return x.Findings, nil
}

// Ask puts a question to the server; several statements give several answers.
func (x *Examination) Ask(ctx context.Context, text string) ([]Rows, error) {
	bound, cancel := context.WithTimeout(ctx, lease.LongestAttempt)
	defer cancel()
	return x.session.ask(bound, text)
}

// Quote writes an identifier, which may have one dot.
func (x *Examination) Quote(name string) string { return x.store.quote(name) }

// connections finds out whether connections are the server's own: a pooler gives each
// transaction another one.
func (x *Examination) connections(ctx context.Context) {
	const pollers = "who waits looks again now and then"
	own := true
	for i := 0; own && i < 4; i++ {
		bound, cancel := context.WithTimeout(ctx, lease.LongestAttempt)
		f, err := x.session.facts(bound)
		cancel()
		if err != nil {
			return
		}
		x.store.maxConns.Store(f.maxConns)
		own = x.session.owns(f.conn)
	}
	switch {
	case x.store.target.waiters == 0:
		x.Add(locks.Note, "wake-up", "?waiters=0: nobody is woken", pollers, "leave ?waiters= away")
	case own:
		x.OK("wake-up", "connections are the server's own: waiters are woken")
	default:
		x.Add(locks.Note, "pooler", poolerText,
			"locks are as safe as without it, but who waits cannot be woken and looks again now and then",
			"connect to the server itself")
	}
}

// table tells whether golock's table is there, and what is wrong with it. Its text is
// given in any case.
func (x *Examination) table(ctx context.Context) locks.Finding {
	s, name := x.store, x.Name
	answers, err := x.Ask(ctx, "SELECT format FROM "+s.table+" WHERE lock_key='' AND entry_id=''")
	f := locks.Finding{Level: locks.Problem, Subject: "table", Why: "no slot can be had there", Text: s.DDL()}
	switch verdict := s.verdict(err); {
	case err == nil && len(answers[0]) == 0:
		f.Level, f.What = locks.Note, name+" has lost its own row: somebody has emptied it"
		f.Why = "the next run makes the row again and grants nothing for as long as leases may last"
	case err == nil && answers[0][0][0] != fmt.Sprint(format):
		f.What = s.formatError(answers[0][0][0]).Error()
		f.Fix = "the same version everywhere, or another ?table="
	case err == nil:
		f.Level, f.What, f.Why = locks.OK, fmt.Sprintf("%s is there, format %d", name, format), ""
	case verdict == NoTable:
		x.missing(ctx, &f)
	case verdict == NoRight:
		f.What = name + " may not be read: " + err.Error()
		f.Fix = "GRANT SELECT, INSERT, UPDATE, DELETE ON " + s.table + " to this user"
	default:
		f.What = name + " cannot be used: " + s.judge(err).Error()
	}
	return f
}

// missing is for a table that does not exist. golock doctor does not make it.
func (x *Examination) missing(ctx context.Context, f *locks.Finding) {
	s := x.store
	f.What = x.Name + " does not exist"
	f.Fix = "let somebody who may run the lines below, and grant this user SELECT, INSERT, UPDATE and DELETE on " + s.table
	may, err := s.dialect.MayCreate(ctx, x)
	switch {
	case err != nil:
		f.Why = "whether this user may make it cannot be found out: " + err.Error()
	case may:
		f.Level, f.Fix = locks.Note, ""
		f.What += " yet; the first run makes it"
		f.Why = "until then rights and times cannot be rehearsed here"
	default:
		f.What += ", and this user may not make it"
		f.Why = "no slot can be had"
	}
}

// mark finds out whether a table that is dropped would be known for that. Where golock
// may not make it again, its loss is noticed anyhow.
func (x *Examination) mark(ctx context.Context) {
	s := x.store
	name := s.quote(s.markName())
	if _, err := x.Ask(ctx, "SELECT COUNT(*) FROM "+name); s.verdict(err) != NoTable {
		return
	}
	if may, err := s.dialect.MayCreate(ctx, x); err != nil || !may {
		return
	}
	x.Append(locks.Finding{
		Level: locks.Note, Subject: "mark", What: s.markName() + " does not exist", Why: s.unmarked(),
		Fix:  "let somebody who may run the line below, and grant this user SELECT on " + name,
		Text: "CREATE TABLE " + name + " (made BIGINT PRIMARY KEY);",
	})
}

// rehearse does what a run does, and removes the name's rows.
func (x *Examination) rehearse(ctx context.Context, ttl time.Duration) {
	s := x.store
	r := network.Rehearse(ctx, s, s.target.Quarantine)
	x.Append(r.Finding(ttl))
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.LongestAttempt)
	defer cancel()
	if err := x.session.deleteName(bound, locks.KeyOf(r.Name)); s.verdict(err) == NoRight {
		x.Add(locks.Problem, "rights", "DELETE is missing: "+err.Error(),
			"who is over cannot be removed: the table grows, and golock clean fails", "GRANT DELETE ON "+s.table+" to this user")
	}
}

// Settings reads an answer with rows of a name and a value.
func Settings(answers []Rows) map[string]string {
	all := make(map[string]string)
	for _, rows := range answers {
		for _, r := range rows {
			if len(r) == 2 {
				all[strings.ToLower(r[0])] = r[1]
			}
		}
	}
	return all
}

// SettingsUnseen is for a server that does not show its settings.
func (x *Examination) SettingsUnseen(err error) {
	x.Add(locks.Note, "settings", "cannot be seen: "+err.Error(),
		"whether the server keeps what it has committed stays open", "")
}

// Forgotten says what it means that a server can lose what it has committed.
func (x *Examination) Forgotten() string {
	return fmt.Sprintf("slots that were given last are forgotten. Who holds one puts it back with the next renewal, "+
		"after a third of the TTL at most; for %v after the restart (?quarantine=) nothing is granted, "+
		"but then another run may be let in. What --hold keeps is lost", x.store.target.Quarantine)
}

// Waiters is how many of each name keep a connection.
func (x *Examination) Waiters() int { return x.store.keptConns() }

// Room judges how many connections there may be.
func (x *Examination) Room(most, used int) {
	what := fmt.Sprintf("at most %d, %d in use; up to %d waiters of each name keep one, and each holder that renews",
		most, used, x.Waiters())
	if most > 0 && most-used < x.Waiters()+2 {
		x.Add(locks.Note, "connections", what,
			"a queue can use up what is left: others are turned away then, and renewals with them",
			"more connections, or a smaller ?waiters= in the URL")
		return
	}
	x.OK("connections", what)
}
