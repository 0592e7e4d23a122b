//go:build integration

package hostile_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// What others write into a store costs its reader an error: no crash, no memory, no loop, and no end of
// a run that an outage would not end.

// scribe writes into a store past golock.
type scribe interface {
	url() string

	// change changes a field of the entry of an ID, which begins with its key. A text that begins with
	// a digit or a minus is a number.
	change(t *testing.T, id, field, value string)

	// multiply makes manyEntries copies of the entry of an ID, which holds slot 0.
	multiply(t *testing.T, id string)
}

// sqlScribe is one on a database.
type sqlScribe struct {
	server   *sqltest.Server
	database string
}

func (s sqlScribe) url() string { return s.server.URL(s.database, "quarantine=0") }

func (s sqlScribe) change(t *testing.T, id, field, value string) {
	t.Helper()
	column := map[string]string{"max": "max_units", "slots": "slots", "replace": "replaces", "end": "ends", "priority": "ord"}[field]
	if column == "" {
		column = field
	}
	if column == "ttl" { // us
		value = strings.TrimSuffix(value, "000")
	}
	if field == "priority" {
		value = strings.Repeat("0", 32)
	}
	_, entry, _ := strings.Cut(id, "-")
	s.server.Exec(t, s.database, fmt.Sprintf("UPDATE golock SET %s='%s' WHERE entry_id='%s'", column, value, entry))
}

// redisScribe is one on Redis.
type redisScribe struct {
	server  *redistest.Server
	address string
	prefix  string
}

func (s redisScribe) url() string { return s.address }

// do runs one command for a test.
func (s redisScribe) do(t *testing.T, args ...any) any {
	t.Helper()
	reply, err := s.server.Try(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

func (s redisScribe) change(t *testing.T, id, field, value string) {
	t.Helper()
	key, entry, _ := strings.Cut(id, "-")
	records := s.prefix + ":{" + key + "}:e"
	text, _ := s.do(t, "HGET", records, entry).(string)
	var r map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	testkit.Must(t, decoder.Decode(&r))
	switch field {
	case "end":
		s.do(t, "ZADD", s.prefix+":{"+key+"}:h", "inf", entry)
		return
	case "weight", "max", "ttl":
		r[field] = json.Number(value)
	default:
		r[field] = value
	}
	changed, err := json.Marshal(r)
	testkit.Must(t, err)
	s.do(t, "HSET", records, entry, string(changed))
}

// fileScribe is one on lease files.
type fileScribe struct{ scheme, dir string }

func (s fileScribe) url() string { return s.scheme + "://" + s.dir }

func (s fileScribe) change(t *testing.T, id, field, value string) {
	t.Helper()
	_, entry, _ := strings.Cut(id, "-")
	column := map[string]int{
		"ticket": 3, "weight": 4, "max": 5, "priority": 6, "fence": 7, "ttl": 8, "end": 10, "slots": 12, "replace": 13,
	}[field]
	switch field {
	case "slots":
		value = "s" + value
	case "replace":
		value = "r" + value
	case "end":
		value = "99999999999999999999"
	}
	path, text := s.state(t, id)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if words := strings.Split(line, " "); words[0] == entry {
			words[column] = value
			lines[i] = strings.Join(words, " ")
		}
	}
	testkit.Must(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o666))
}

// state gives the file of the last version of an ID's lock, and its text.
func (s fileScribe) state(t *testing.T, id string) (path, text string) {
	t.Helper()
	key, _, _ := strings.Cut(id, "-")
	versions, err := filepath.Glob(s.dir + "/" + key + "/v*")
	testkit.Must(t, err)
	highest := 0
	for _, v := range versions {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(v), "v%d", &n); err == nil && n > highest {
			highest, path = n, v
		}
	}
	if s.scheme == "mkdir" {
		path += "/state"
	}
	all, err := os.ReadFile(path)
	testkit.Must(t, err)
	return path, string(all)
}

// scribes gives one for each store that has leases.
func scribes(t *testing.T) map[string]scribe {
	t.Helper()
	shared := redistest.Shared(t)
	prefix := fmt.Sprintf("stored%d", time.Now().UnixNano())
	maria, postgres := sqltest.Maria(t), sqltest.Postgres(t)
	return map[string]scribe{
		"redis":    redisScribe{shared, shared.SocketURL("prefix="+prefix, "quarantine=0s"), prefix},
		"mariadb":  sqlScribe{maria, maria.NewDatabase(t)},
		"postgres": sqlScribe{postgres, postgres.NewDatabase(t)},
		"mkdir":    fileScribe{"mkdir", testkit.Place(t, 0o777)},
		"etcd":     etcdScribeOf(t),
	}
}

// hostile are values that golock does not write, some for each field. (All values: TestStored.)
var hostile = []struct{ field, value string }{
	{"slots", "9223372036854775807"}, {"slots", "1-9223372036854775807"}, {"weight", "-5"}, {"max", "-1"},
	{"ttl", "9000000000000000000"}, {"fence", "-1"}, {"replace", "all"}, {"end", "9223372036854775807"},
}

// Each value in an entry of its own lock: commands end with 69 and name the entry, a run that holds
// another lock of the store goes on, and break removes it.
func TestStoredByOthers(t *testing.T) {
	t.Parallel()
	testkit.Each(t, scribes(t), func(t *testing.T, _ string, w scribe) {
		s := testkit.OnStore(t, w.url())
		other := hold(s, 0, "--name", "other", "--ttl", "20s")
		var breaks, runs []*testkit.Command
		for i, h := range hostile {
			what, name := h.field+" "+h.value, fmt.Sprint("n", i)
			r := as(s, 0, "acquire", "--name", name, "--for", "none", "--ttl", "25s")
			says(t, "acquire", r, 0)
			id := strings.TrimSpace(r.Stdout)
			w.change(t, id, h.field, h.value)
			calls := [][]string{{"run", "-n", "--name", name, "--", "true"}, {"ls", name}}
			if i == 0 {
				calls = append(calls, []string{"run", "--name", name, "--", "true"}, []string{"ls"}, []string{"ls", "--json"})
			}
			for _, args := range calls {
				says(t, what+": "+args[0], as(s, 0, args...), 69, id, "golock break --id "+id)
			}
			how := []string{"break", name}
			if i%2 == 0 {
				how = []string{"break", "--id", id}
			}
			breaks = append(breaks, command(s, 0, how...))
			runs = append(runs, command(s, 0, "run", "-n", "--name", name, "--", "true"))
		}
		for i, r := range append(testkit.RunAll(breaks), testkit.RunAll(runs)...) {
			if i >= len(breaks) || r.Code != 79 { // its time may be over before
				says(t, fmt.Sprint("then ", hostile[i%len(hostile)]), r, 0)
			}
		}
		// break leaves an invalid entry alone, and sees that another entry of its lock is gone.
		says(t, "run --hold", as(s, 0, "run", "--name", "two", "--max", "2", "--ttl", "3s", "--hold", "1h", "--", "true"), 0)
		r := as(s, 0, "acquire", "--name", "two", "--max", "2", "--for", "none", "--ttl", "60s")
		says(t, "acquire", r, 0)
		invalid := strings.TrimSpace(r.Stdout)
		w.change(t, invalid, "weight", "-5")
		says(t, "break --dead", as(s, 0, "break", "two", "--dead"), 0, "evicted from")
		says(t, "ls", as(s, 0, "ls", "two"), 69, invalid)
		says(t, "held", as(s, 0, "held", "--id", other.id), 0)
		other.In.Close()
		other.Expects(1) // of read at the end of a file
	})
}

// The entry of a waiter is changed: the one that holds ends as it would, those that wait go on, and come
// through when it is gone. A newcomer is told. On Redis and etcd the waiter writes its entry again; on etcd
// at once, so that no newcomer sees it.
func TestWaiterByOthers(t *testing.T) {
	t.Parallel()
	testkit.Each(t, scribes(t), func(t *testing.T, kind string, w scribe) {
		s := testkit.OnStore(t, w.url())
		holder := hold(s, 0, "--name", "x", "--ttl", "20s")
		changed := command(s, 0, "run", "--name", "x", "--ttl", "60s", "--", "true").Begin()
		s.AwaitWaiting("x", 1)
		waiter := command(s, 0, "run", "--name", "x", "--ttl", "60s", "--", "true").Begin()
		s.AwaitWaiting("x", 2)
		id := s.List("x")[1].ID
		w.change(t, id, "weight", "-5")
		if kind != "etcd" {
			says(t, "a newcomer", as(s, 0, "run", "-n", "--name", "x", "--", "true"), 69, id, "weight -5")
		}
		says(t, "held", as(s, 0, "held", "--id", holder.id), 0)
		holder.In.Close()
		holder.Expects(1)
		if kind == "redis" || kind == "etcd" {
			changed.Expects(0)
		} else {
			if !changed.Running() || !waiter.Running() {
				t.Error("a waiter has ended")
			}
			says(t, "break", as(s, 0, "break", "--id", id), 0)
			changed.Expects(75)
		}
		waiter.Expects(0)
	})
}

// The entry of a run is changed, and put right again before its lease is over: the command goes on.
func TestHolderByOthers(t *testing.T) {
	t.Parallel()
	testkit.Each(t, scribes(t), func(t *testing.T, _ string, w scribe) {
		s := testkit.OnStore(t, w.url())
		holder := hold(s, 0, "--name", "x", "--ttl", "30s")
		w.change(t, holder.id, "slots", "1-9223372036854775807")
		as(s, 0, "held", "--id", holder.id) // it tries to renew
		w.change(t, holder.id, "slots", "0")
		testkit.Eventually(t, "it is renewed", func() bool { return as(s, 0, "held", "--id", holder.id).Code == 0 })
		holder.In.Close()
		holder.Expects(1)
	})
}

// A directory in the place of a record, and a record with a TTL of centuries: a clean ends, and removes
// them. Slow: it takes them for alive for the usual TTL.
func TestRecordsByOthers(t *testing.T) {
	t.Parallel()
	dir := testkit.Place(t, 0o777)
	s := testkit.OnStore(t, "mkdir://"+dir)
	says(t, "run", as(s, 0, "run", "--name", "x", "--", "true"), 0)
	head := testkit.OnlyFile(t, dir+"/*/name")
	data := filepath.Dir(head) + "/data/"
	testkit.Must(t, os.Mkdir(data+fmt.Sprintf("%032x-0", 1), 0o755))
	beat := fmt.Sprintf("%020d %020d %020d j\n", 1, 1, 1)
	for i, record := range []string{`{"ttl":9000000000000000000}`, `{"ttl":1000000000,"since":9223372036854775807}`, `[`} {
		testkit.Must(t, os.WriteFile(data+fmt.Sprintf("%032x-0", i+2), []byte(beat+record), 0o666))
	}
	says(t, "clean", as(s, 0, "clean"), 0, "4 removed")
	if left, _ := os.ReadDir(data); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A record of a lock file whose numbers golock does not write: who waits goes on and comes through.
func TestLocalRecordsByOthers(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(b []byte){
		"weight":     func(b []byte) { binary.LittleEndian.PutUint32(b[32:], 1<<31) },
		"max":        func(b []byte) { binary.LittleEndian.PutUint32(b[36:], 1<<31) },
		"above max":  func(b []byte) { binary.LittleEndian.PutUint32(b[32:], 2) },
		"fence":      func(b []byte) { binary.LittleEndian.PutUint64(b[80:], 1<<63-1) },
		"since":      func(b []byte) { binary.LittleEndian.PutUint64(b[72:], 1<<63-1) },
		"its ticket": func(b []byte) { binary.LittleEndian.PutUint64(b[8:], 1<<62) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, dir := sharedLocal(t)
			holder := hold(s, victim, "--name", "x")
			waiter := command(s, victim, "run", "--name", "x", "--", "true").Begin()
			s.AwaitWaiting("x", 1)
			file := testkit.OnlyFile(t, dir+"/x.*.lock")
			forge(t, file, 0, change)
			says(t, "ls", as(s, victim, "ls"), 69, file)
			says(t, "run", as(s, victim, "run", "-n", "--name", "x", "--", "true"), 69, file, "repaired")
			holder.In.Close()
			holder.Expects(1)
			waiter.Expects(0)
			says(t, "run", as(s, victim, "run", "-n", "--name", "x", "--", "true"), 0)
		})
	}
}
