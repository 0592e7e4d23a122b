package files_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// change writes a word of an entry's line in the latest version.
func change(t *testing.T, url, id string, column int, value string) {
	t.Helper()
	path := latest(t, url)
	text, err := os.ReadFile(path)
	testkit.Must(t, err)
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if words := strings.Split(line, " "); words[0] == id {
			words[column] = value
			lines[i] = strings.Join(words, " ")
		}
	}
	testkit.Must(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
}

// freed waits until a newcomer gets a slot. Until then the lock is busy or has invalid entries.
func freed(t *testing.T, s locks.Store) {
	t.Helper()
	for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(time.Second) {
		admission, err := s.Join(background, locktest.NewRequest(t, "n", locktest.NoWait))
		if err == nil {
			_, err = admission.Wait(background)
		}
		if err == nil {
			return
		}
		if !locktest.IsBusy(err) && len(locks.AsInvalid(err)) == 0 {
			t.Fatal(err)
		}
	}
	t.Error("nobody gets a slot in an hour")
}

// Whatever word of a holder's line is damaged, nobody gets a slot before its lease and its hold are
// over, and somebody does soon after.
func TestDamagedLineKeepsItsTime(t *testing.T) {
	const lease, long = time.Minute, 5 * time.Minute
	const id, state, weight, ttl, hold, granted, slots = 0, 1, 4, 8, 9, 10, 12
	for name, c := range map[string]struct {
		column int
		value  string
		hold   time.Duration // of one that has released; 0: it holds
	}{
		"id":               {id, "x", 0},
		"state":            {state, "x", 0},
		"weight":           {weight, "-5", 0},
		"slots":            {slots, "s1-9223372036854775807", 0},
		"no TTL":           {ttl, "0", 0},
		"long TTL":         {ttl, "9000000000000000000", 0},
		"short TTL":        {ttl, "1000000000", 0},
		"no hold":          {hold, "99999999999999999999", 0},
		"weight in a hold": {weight, "-5", long},
		"slots in a hold":  {slots, "x", long},
		"a word more":      {weight, "1 1", 0},
		"no instant":       {granted, "99999999999999999999", long},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T, url string) {
				s, until := openAt(t, url, "one", 0), max(lease, c.hold)
				began := time.Now()
				l := locktest.AcquireAtOnce(t, s, "n", locktest.TTL(lease), locktest.Hold(c.hold))
				if c.hold > 0 {
					testkit.Must(t, locktest.ReleaseUntilAnswered(l))
				}
				change(t, url, l.Grant().Ref.ID.String(), c.column, c.value)
				freed(t, openAt(t, url, "two", 0))
				testkit.Lasted(t, began, until, until+until/10)
			})
		})
	}
}

// Two lines without an ID are two entries: the time of one is not that of the other.
func TestTwoDamagedIDs(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		s := openAt(t, url, "one", 0)
		began := time.Now()
		short, long := locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2), locktest.TTL(keptTTL)), locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2), locktest.TTL(time.Minute))
		change(t, url, short.Grant().Ref.ID.String(), 0, "x")
		change(t, url, long.Grant().Ref.ID.String(), 0, "y")
		freed(t, openAt(t, url, "two", 0))
		testkit.Lasted(t, began, time.Minute, 2*time.Minute)
	})
}

// A request beside the versions fails no step of others because an entry is invalid. It is let in when
// that entry has been put right.
func TestRequestBesideADamagedEntry(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(url)
		damaged, l := locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2)), locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2))
		id := strings.Repeat("ab", 16)
		dir := directory(t, url) + "/" + locks.KeyOf("n").String()
		for name, text := range map[string]string{
			"/data/" + id + "-0": fmt.Sprintf("%020d %020d %020d j\n{}\n", 1, 1, 1),
			"/join." + id + "-0": "1 0 1\n" + id + ` W 0 0 1 2 0 0 600000000000 0 0 0 s r ""` + "\n",
		} {
			testkit.Must(t, os.WriteFile(dir+name, []byte(text), 0o600))
		}
		change(t, url, damaged.Grant().Ref.ID.String(), 4, "-5")
		testkit.Must(t, l.Release(background))
		change(t, url, damaged.Grant().Ref.ID.String(), 4, "1")
		locktest.ExpectEntries(t, s, "n", locktest.Counts{Holding: 1})
		locktest.Release(t, damaged)
		locktest.ExpectEntries(t, s, "n", locktest.Counts{Holding: 1})
	})
}

// Words that a later version of golock adds to the line of an entry, or to the first line, stay when
// others make a version, and change nothing.
func TestWordsOfALaterVersion(t *testing.T) {
	const evicted = 14
	virtually(t, func(t *testing.T, url string) {
		s := openAt(t, url, "one", 0)
		l := locktest.AcquireAtOnce(t, s, "n")
		id := l.Grant().Ref.ID.String()
		change(t, url, id, evicted, `"" note="a b"`)
		text, err := os.ReadFile(latest(t, url))
		testkit.Must(t, err)
		first, rest, _ := strings.Cut(string(text), "\n")
		testkit.Must(t, os.WriteFile(latest(t, url), []byte(first+" later=1\n"+rest), 0o600))
		w := locktest.Enqueue(t, s, "n")
		text, err = os.ReadFile(latest(t, url))
		testkit.Must(t, err)
		if lines := strings.Split(string(text), "\n"); !strings.HasSuffix(lines[0], " later=1") ||
			!strings.HasPrefix(lines[1], id) || !strings.HasSuffix(lines[1], ` "" note="a b"`) {
			t.Errorf("the next version is\n%s", text)
		}
		locktest.ExpectEntries(t, s, "n", locktest.Counts{Holding: 1, Waiting: 1})
		testkit.Must(t, locktest.ReleaseUntilAnswered(l))
		w.ExpectGrant()
	})
}
