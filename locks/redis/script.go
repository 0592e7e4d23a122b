package redis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
)

// The script is the whole decision about a lock: what it stores and answers is in the
// head of queue.lua. Its modes are the steps of lease, and list.
var (
	//go:embed queue.lua
	queueScript string

	//go:embed steps.lua
	stepsScript string
)

// format is that of what the script stores.
const format = "2"

const list = "list"

// script is the whole text and its hash, once it has been asked for.
type script struct {
	once       sync.Once
	text, hash string
}

// run sends the hash, and the text if the server does not have it: after a restart,
// a failover, SCRIPT FLUSH.
func (s *script) run(ctx context.Context, to goredis.Scripter, k call) (any, error) {
	s.once.Do(func() {
		s.text = queueScript + stepsScript
		sum := sha1.Sum([]byte(s.text))
		s.hash = hex.EncodeToString(sum[:])
	})
	fields, err := to.EvalSha(ctx, s.hash, k.keys, k.args()...).Result()
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		fields, err = to.Eval(ctx, s.text, k.keys, k.args()...).Result()
	}
	return fields, err
}

// call is one run of the script for one entry.
type call struct {
	step       string
	keys       []string
	channels   string // what comes before the id in the name of its channel
	id         string
	name       string // "" if only the ref is known
	epoch      string
	record     string // "" likewise
	noWait     bool
	within     string
	maxQueue   string // how many may wait already; "": any number
	by         string // who it is, for those that are evicted
	quarantine time.Duration
}

func (k call) args() []any {
	wait := ""
	if k.noWait {
		wait = "nowait"
	}
	return []any{k.step, k.id, k.quarantine.Milliseconds(), k.channels, k.name, k.epoch, k.record, wait, k.within, k.maxQueue, k.by}
}

// call prepares one for a lock.
func (s *Store) call(step string, key locks.Key) call {
	tag := s.target.prefix + ":{" + key.String() + "}:"
	k := call{step: step, channels: tag + "c:", quarantine: s.target.Quarantine, keys: make([]string, 0, 7)}
	for _, part := range "shqdeg" {
		k.keys = append(k.keys, tag+string(part))
	}
	if s.target.kind != cluster {
		k.keys = append(k.keys, s.index())
	}
	return k
}

// index is the key under which all names are noted.
func (s *Store) index() string { return s.target.prefix + ":names" }

// channel is where an entry is told something.
func (s *Store) channel(ref locks.Ref) string {
	return s.target.prefix + ":{" + ref.Key.String() + "}:c:" + idOf(ref)
}

func idOf(ref locks.Ref) string { return hex.EncodeToString(ref.ID[:]) }

// reply is what the script answers. The verdict tells which fields are set.
type reply struct {
	lease.Answer
	record  record
	raw     string // the record as it is stored
	name    string
	inside  string
	noRunID bool     // the server does not tell which one it is
	entries []listed // of a list or a refusal, or those that were replaced
}

// listed is one entry of a list or a refusal.
type listed struct {
	state  locks.State
	id     string
	left   time.Duration
	record record
	hold   time.Duration // what is left of it
	ended  bool          // only its hold keeps the slot
	by     string        // who evicted it; "": nobody
}

// isGrant reports whether a reply is a grant.
func isGrant(reply any) bool {
	fields, ok := reply.([]any)
	return ok && len(fields) > 0 && fields[0] == string(lease.Granted)
}

// read understands a reply.
func (k call) read(fields any) (reply, error) {
	r := reader{}
	r.fields, _ = fields.([]any)
	var a reply
	a.QuarantineCause = "the server has restarted, or another one took over"
	a.Verdict = lease.Verdict(r.text())
	switch a.Verdict {
	case lease.Granted:
		a.Epoch = r.text()
		a.raw, a.record = r.record()
		a.noRunID = r.number() == 1
		a.entries = r.list()
	case lease.Queued:
		a.Epoch = r.text()
		a.raw, a.record = r.record()
		a.Place, a.Recheck, a.Quarantine, a.noRunID = int(r.number()), r.ms(), r.ms(), r.number() == 1
		a.entries = r.list()
	case lease.Nested:
		a.inside = r.text()
		a.Quarantine, a.Waiters = r.ms(), int(r.number())
		a.entries = r.list()
	case lease.Busy:
		a.Full = r.number() == 1
		a.Quarantine, a.Waiters = r.ms(), int(r.number())
		a.entries = r.list()
	case lease.Held:
		a.Epoch = r.text()
		a.raw, a.record = r.record()
		a.name = r.text()
	case lease.Released:
		a.Existed, a.Epoch = r.number() == 1, r.text()
	case list:
		a.name, a.Quarantine = r.text(), r.ms()
		a.entries = r.list()
	case lease.Evicted:
		a.By = r.text()
	case lease.Gone, lease.Lost, lease.Marked:
	case "format":
		return a, &FormatError{Found: r.text()}
	case "name":
		return a, fmt.Errorf("the hash of the name %q is also that of %q, which is in use: choose another name", k.name, locks.Printable(r.text(), 300))
	default:
		r.bad = true
	}
	if r.bad {
		return a, fmt.Errorf("%s: an answer that golock does not understand: %.200q", k.keys[0], fmt.Sprint(fields))
	}
	return a, nil
}

// FormatError says that what is stored was written by another version.
type FormatError struct{ Found string }

func (e *FormatError) Error() string {
	return fmt.Sprintf("the lock is stored in format %s and this golock knows format %s: use the same version everywhere", locks.Printable(e.Found, 20), format)
}

// reader takes the fields of a reply one by one.
type reader struct {
	fields []any
	bad    bool
}

func (r *reader) next() any {
	if len(r.fields) == 0 {
		r.bad = true
		return nil
	}
	f := r.fields[0]
	r.fields = r.fields[1:]
	return f
}

func (r *reader) text() string {
	s, ok := r.next().(string)
	r.bad = r.bad || !ok
	return s
}

func (r *reader) number() int64 {
	n, ok := r.next().(int64)
	r.bad = r.bad || !ok
	return n
}

func (r *reader) ms() time.Duration { return time.Duration(r.number()) * time.Millisecond }

func (r *reader) record() (string, record) {
	text := r.text()
	rec, err := parseRecord(text)
	r.bad = r.bad || err != nil
	return text, rec
}

func (r *reader) list() []listed {
	var all []listed
	for len(r.fields) > 0 && !r.bad {
		l := listed{state: locks.State(r.text()), id: r.text(), left: r.ms()}
		_, l.record = r.record()
		l.hold, l.ended, l.by = r.ms(), r.text() == "0", r.text()
		r.bad = r.bad || (l.state != locks.Holding && l.state != locks.Waiting)
		all = append(all, l)
	}
	return all
}
