package redis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"encoding/json"
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
const format = "3"

const list = "list"

// script is the whole text and its hash, once it has been asked for.
type script struct {
	once       sync.Once
	text, hash string
}

// run sends the hash, and the text if the server does not have it: after a restart,
// a failover, SCRIPT FLUSH.
func (s *script) run(ctx context.Context, to goredis.Scripter, k call) (reply, error) {
	s.once.Do(func() {
		s.text = queueScript + stepsScript
		sum := sha1.Sum([]byte(s.text))
		s.hash = hex.EncodeToString(sum[:])
	})
	text, err := to.EvalSha(ctx, s.hash, k.keys, k.args()...).Text()
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		text, err = to.Eval(ctx, s.text, k.keys, k.args()...).Text()
	}
	if err != nil {
		return reply{}, err
	}
	return k.read(text)
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
	return s.target.prefix + ":{" + ref.Key.String() + "}:c:" + ref.ID.String()
}

// reply is what the script answers. The verdict tells which fields are set.
type reply struct {
	Verdict lease.Verdict
	Epoch   string
	Record  *record
	NoRunID bool // the server does not tell which one it is

	Place, Waiters      int
	Recheck, Quarantine millis
	Full, Existed       bool
	Inside              string
	By, Name, Found     string
	Entries             []listed // of a list or a refusal, or those that were replaced
}

// listed is one entry of a list or a refusal.
type listed struct {
	State  locks.State
	ID     string
	Left   millis
	Record record
	Hold   millis // what is left of it
	Ended  bool   // only its hold keeps the slot
	By     string // who evicted it; "": nobody
}

// read understands a reply.
func (k call) read(text string) (r reply, err error) {
	switch err = json.Unmarshal([]byte(text), &r); {
	case err != nil:
		err = fmt.Errorf("%s: an answer that golock does not understand: %.200q: %w", k.keys[0], text, err)
	case r.Verdict == "format":
		err = &FormatError{Found: r.Found}
	case r.Verdict == "name":
		err = fmt.Errorf("the hash of the name %q is also that of %q, which is in use: choose another name", k.name, locks.Printable(r.Found, 300))
	}
	if err != nil {
		return r, &lease.Refusal{Err: err}
	}
	return r, nil
}

// FormatError says that what is stored was written by another version.
type FormatError struct{ Found string }

func (e *FormatError) Error() string {
	return fmt.Sprintf("the lock is stored in format %s and this golock knows format %s: use the same version everywhere", locks.Printable(e.Found, 20), format)
}
