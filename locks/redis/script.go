package redis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
)

// lockScript is the whole decision about a name; see there for what it stores
// and answers.
//
//go:embed lock.lua
var lockScript string

// format is that of what lockScript stores.
const format = "2"

// The script's modes.
const (
	join    = "join"
	renew   = "renew"
	release = "release"
	quit    = "leave" // release, for one that does not know of a grant: it has no hold
	evict   = "evict"
	list    = "list"
)

// script knows the script's hash, once it has been asked for.
type script struct {
	once sync.Once
	hash string
}

// run sends the hash, and the text if the server does not have it: after a
// restart, a failover, SCRIPT FLUSH.
func (s *script) run(ctx context.Context, to goredis.Scripter, k call) (any, error) {
	s.once.Do(func() {
		sum := sha1.Sum([]byte(lockScript))
		s.hash = hex.EncodeToString(sum[:])
	})
	reply, err := to.EvalSha(ctx, s.hash, k.keys, k.args()...).Result()
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = to.Eval(ctx, lockScript, k.keys, k.args()...).Result()
	}
	return reply, err
}

// call is one run of the script for one entry.
type call struct {
	mode       string
	keys       []string
	channels   string // what comes before the id in the name of its channel
	id         string
	name       string // "" if only the ref is known
	epoch      string
	record     string // "" likewise
	noWait     bool
	within     string
	most       string // how many may wait already; "": any number
	by         string // who it is, for those that are evicted
	quarantine time.Duration
}

func (k call) args() []any {
	wait := ""
	if k.noWait {
		wait = "nowait"
	}
	return []any{k.mode, k.id, k.quarantine.Milliseconds(), k.channels, k.name, k.epoch, k.record, wait, k.within, k.most, k.by}
}

// call prepares one for a name.
func (s *Store) call(mode string, key locks.Key) call {
	tag := s.target.prefix + ":{" + key.String() + "}:"
	k := call{mode: mode, channels: tag + "c:", quarantine: s.target.quarantine, keys: make([]string, 0, 7)}
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
	return s.target.prefix + ":{" + ref.Key.String() + "}:c:" + hex.EncodeToString(ref.ID[:])
}

// record is what the store keeps of an entry.
type record struct {
	ttl     time.Duration
	claim   locks.Claim
	fence   int64
	since   int64 // us since 1970, on the server's clock
	ears    hearing
	replace locks.Replacement
	hold    time.Duration // from the grant on, in whole ms
	slots   []int
	detail  string // who it is, in JSON
}

// hearing is what a waiter takes in of what is published to it.
type hearing int64

const (
	deafened hearing = iota // nothing: it has not subscribed
	hints                   // that it is to look
	grants                  // also that it has become a holder: this, or any higher number
)

// order writes a priority so that the bytes of a higher one sort before those
// of a lower one.
func order(priority int) uint64 { return uint64(math.MaxInt64) - uint64(int64(priority)) }

func (r *record) String() string {
	return fmt.Sprintf("%d %d %d %016x %016d %016d %016d %d %d %d %s %s", r.ttl.Milliseconds(), r.claim.Weight, r.claim.Max,
		order(r.claim.Priority), r.claim.Ticket, r.fence, r.since, r.ears, slices.Index(replacements(), r.replace),
		r.hold.Milliseconds(), formatSlots(r.slots), r.detail)
}

// replacements by their number in a record.
func replacements() []locks.Replacement {
	return []locks.Replacement{locks.ReplaceNone, locks.ReplaceWaiting, locks.ReplaceRunning}
}

func parseRecord(text string) (record, error) {
	var r record
	fields := strings.SplitN(text, " ", 12)
	if len(fields) != 12 {
		return r, fmt.Errorf("a record with %d fields", len(fields))
	}
	var numbers [10]int64
	for i := range numbers {
		var err error
		if i == 3 {
			var n uint64
			n, err = strconv.ParseUint(fields[i], 16, 64)
			numbers[i] = int64(uint64(math.MaxInt64) - n)
		} else {
			numbers[i], err = strconv.ParseInt(fields[i], 10, 64)
		}
		if err != nil {
			return r, err
		}
	}
	r.ttl = time.Duration(numbers[0]) * time.Millisecond
	r.claim = locks.Claim{Weight: int(numbers[1]), Max: int(numbers[2]), Priority: int(numbers[3]), Ticket: numbers[4]}
	r.fence, r.since, r.ears, r.detail = numbers[5], numbers[6], hearing(numbers[7]), fields[11]
	if numbers[8] < 0 || int(numbers[8]) >= len(replacements()) {
		return r, fmt.Errorf("a replacement of %d", numbers[8])
	}
	r.replace, r.hold = replacements()[numbers[8]], time.Duration(numbers[9])*time.Millisecond
	var err error
	r.slots, err = parseSlots(fields[10])
	return r, err
}

// formatSlots writes a field that is not empty: none is "-".
func formatSlots(slots []int) string {
	if len(slots) == 0 {
		return "-"
	}
	return locks.FormatSlots(slots)
}

func parseSlots(text string) ([]int, error) {
	switch text {
	case "-":
		return nil, nil
	case "":
		return nil, errors.New("a record without slots")
	}
	return locks.ParseSlots(text, maxUnits)
}

// answer is what the script says. word tells which fields are set.
type answer struct {
	word   string
	epoch  string
	record record
	raw    string // the record as it is stored
	name   string

	place  int           // waiting: 1 is the next
	look   time.Duration // waiting: when to look again
	quiet  time.Duration // nothing is granted for this long
	unsure bool          // the server does not tell which one it is

	inside  string // nested: the id of the enclosing run
	waiters int
	full    bool     // busy: no more may wait
	by      string   // evicted: who did it
	entries []listed // also, granted or waiting: those that were replaced
	was     bool     // release: it was there
}

// listed is one entry of a list or a refusal.
type listed struct {
	state  locks.State
	id     string
	left   time.Duration
	record record
	stays  time.Duration // what is left of its hold
	ended  bool          // it only stays for that
	by     string        // who told it to go; "": nobody
}

// isGrant reports whether a reply is a grant.
func isGrant(reply any) bool {
	fields, ok := reply.([]any)
	return ok && len(fields) > 0 && fields[0] == "granted"
}

// read understands a reply.
func (k call) read(reply any) (answer, error) {
	r := reader{}
	r.fields, _ = reply.([]any)
	a := answer{word: r.text()}
	switch a.word {
	case "granted":
		a.epoch = r.text()
		a.raw, a.record = r.record()
		a.unsure = r.number() == 1
		a.entries = r.list()
	case "waiting":
		a.epoch = r.text()
		a.raw, a.record = r.record()
		a.place, a.look, a.quiet, a.unsure = int(r.number()), r.ms(), r.ms(), r.number() == 1
		a.entries = r.list()
	case "nested":
		a.inside = r.text()
		a.quiet, a.waiters = r.ms(), int(r.number())
		a.entries = r.list()
	case "busy":
		a.full = r.number() == 1
		a.quiet, a.waiters = r.ms(), int(r.number())
		a.entries = r.list()
	case "held":
		a.epoch = r.text()
		a.raw, a.record = r.record()
		a.name = r.text()
	case "released":
		a.was, a.epoch = r.number() == 1, r.text()
	case "list":
		a.name, a.quiet = r.text(), r.ms()
		a.entries = r.list()
	case "evicted":
		a.by = r.text()
	case "gone", "lost", "marked":
	case "format":
		return a, &FormatError{Found: r.text()}
	case "name":
		return a, fmt.Errorf("the hash of the name %q is also that of %q, which is in use: choose another name", k.name, locks.Printable(r.text(), 300))
	default:
		r.bad = true
	}
	if r.bad {
		return a, fmt.Errorf("%s: an answer that golock does not understand: %.200q", k.keys[0], fmt.Sprint(reply))
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
		l.stays, l.ended, l.by = r.ms(), r.text() == "0", r.text()
		r.bad = r.bad || (l.state != locks.Holding && l.state != locks.Waiting)
		all = append(all, l)
	}
	return all
}
