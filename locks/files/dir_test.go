package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// Foreign files in the directory stay and change nothing.
func TestForeignFiles(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(url)
		testkit.Must(t, locktest.AcquireAtOnce(t, s, "n").Release(background))
		dir := directory(t, url)
		n := filepath.Dir(testkit.OnlyFile(t, dir+"/*/name"))
		foreign := []string{
			dir + "/README", dir + "/.nfs0001", dir + "/0123456789abcdef0123456789abcdef",
			n + "/v", n + "/v0", n + "/v01", n + "/v-1", n + "/v" + strings.Repeat("9", 19), n + "/v1x", n + "/t.x", n + "/.nfs12",
			n + "/data/x", n + "/data/0123456789abcdef0123456789abcdef", n + "/data/0123456789abcdef0123456789abcdef-01",
		}
		for _, f := range foreign {
			testkit.Must(t, os.WriteFile(f, []byte("foreign"), 0o600))
		}
		testkit.Must(t, locktest.AcquireAtOnce(t, s, "n").Release(background))
		_, err := s.Sweep(background, "", 0)
		testkit.Must(t, err)
		if got := locktest.List(t, s, ""); len(got) != 0 {
			t.Errorf("entries %+v", got)
		}
		for _, f := range foreign {
			if _, err := os.Stat(f); err != nil {
				t.Error(err)
			}
		}
	})
}

// An entry whose record cannot be read has no heartbeat.
func TestNoSignOfLife(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		for name, spoil := range map[string]func(path string) error{
			"gone":      os.Remove,
			"damaged":   func(path string) error { return os.WriteFile(path, []byte("\x00\x00\x00"), 0o600) },
			"cut":       func(path string) error { return os.Truncate(path, 20) },
			"a FIFO":    func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
			"a link":    func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)) },
			"a tree":    func(path string) error { return errors.Join(os.Remove(path), os.MkdirAll(path+"/deep", 0o700)) },
			"very long": func(path string) error { return os.Truncate(path, 1<<40) },
		} {
			s := openAt(t, url, "one", 0)
			locktest.AcquireAtOnce(t, s, name, locktest.Limit(5), locktest.TTL(keptTTL))
			record := testkit.OnlyFile(t, directory(t, url)+"/"+locks.KeyOf(name).String()+"/data/*")
			testkit.Must(t, spoil(record))
			began := time.Now()
			locktest.ExpectEntries(t, s, name, locktest.Counts{Holding: 1})
			locktest.ExpectBusy(t, s, name)
			locktest.Acquire(t, openAt(t, url, "two", 0), name)
			testkit.Lasted(t, began, keptTTL-time.Second, 2*keptTTL)
		}
	})
}

// The part of a record that no renewal writes again is damaged: its owner goes on renewing, and holds.
func TestDamagedRecordOfALiveHolder(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		s, other := openAt(t, url, "one", 0), openAt(t, url, "two", 0)
		l := locktest.AcquireAtOnce(t, s, "n", locktest.TTL(keptTTL))
		keep(t, l)
		record := testkit.OnlyFile(t, directory(t, url)+"/*/data/*")
		text, err := os.ReadFile(record)
		testkit.Must(t, err)
		for _, damaged := range []string{`{"ttl":-300000000}`, "[", ""} {
			heartbeat, _, _ := strings.Cut(string(text), "\n")
			testkit.Must(t, os.WriteFile(record, []byte(heartbeat+"\n"+damaged), 0o600))
			for range 8 {
				time.Sleep(keptTTL / 4)
				locktest.ExpectBusy(t, s, "n")
				locktest.ExpectBusy(t, other, "n")
			}
			text, err = os.ReadFile(record)
			testkit.Must(t, err)
		}
		locktest.ExpectError(t, locktest.TryRenew(s.Attach(l.Grant().Ref)), "is not what golock has written")
	})
}

// A version that is not what golock has written is an error that says what to do.
func TestDamagedVersion(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(url)
		locktest.Release(t, locktest.AcquireAtOnce(t, s, "n"))
		path := latest(t, url)
		for what, spoil := range map[string]func() error{
			"empty":   func() error { return os.WriteFile(path, nil, 0o600) },
			"foreign": func() error { return os.WriteFile(path, []byte(`{"entries":[{"id":"x"}]}`), 0o600) },
			"a FIFO":  func() error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
			"no file": func() error { return os.Remove(path) },
		} {
			old, err := os.ReadFile(path)
			testkit.Must(t, err)
			testkit.Must(t, spoil())
			err = locktest.ExpectFinalError(t, s, "n")
			if isVersion := !strings.HasPrefix(url, "excl:"); what == "no file" && !isVersion {
				continue // then there is one version less
			}
			locktest.ExpectError(t, err, "damaged", ".used when no run")
			_ = os.Remove(path)
			testkit.Must(t, os.WriteFile(path, old, 0o600))
		}
		highest := testkit.OnlyFile(t, directory(t, url)+"/*/data") + "/../v4000000000000000000"
		for _, make := range []func() error{
			func() error { return unix.Mkfifo(highest, 0o600) },
			func() error { return os.Symlink("/etc/passwd", highest) },
			func() error { return errors.Join(os.WriteFile(highest, nil, 0o600), os.Truncate(highest, 1<<40)) },
		} {
			testkit.Must(t, make())
			_, listed := s.Entries(background, "n")
			for _, err := range []error{locktest.ExpectFinalError(t, s, "n"), listed} {
				locktest.ExpectError(t, err, "damaged")
			}
			testkit.Must(t, os.Remove(highest))
		}
		locktest.Release(t, locktest.AcquireAtOnce(t, s, "n"))
	})
}

// Names whose keys are the same, and layouts of another version, are refused.
func TestHeads(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(url)
		testkit.Must(t, locktest.AcquireAtOnce(t, s, "n").Release(background))
		head := testkit.OnlyFile(t, directory(t, url)+"/*/name")
		for text, says := range map[string]string{
			`{"golock":3,"name":"other"}`: `belongs to the name "other"`,
			`{"golock":1,"name":"n"}`:     "has format 1, this golock knows format 3 (when no golock of any version uses it, remove ",
			`{"golock":4,"name":"n"}`:     "has format 4",
			"nonsense":                    "damaged",
		} {
			testkit.Must(t, os.WriteFile(head, []byte(text), 0o600))
			locktest.ExpectError(t, locktest.ExpectFinalError(t, s, "n"), says)
		}
	})
}

// A name that could not be noted as used is noted by the next attempt.
func TestUsedIsNotedAgain(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, dir := open(url), directory(t, url)
		testkit.Must(t, os.Chmod(dir, 0o755))
		locktest.Release(t, locktest.AcquireAtOnce(t, s, "n"))
		used := testkit.OnlyFile(t, dir+"/*.used")
		testkit.Must(t, os.Remove(used))
		testkit.Must(t, os.Chmod(dir, 0o555))
		runtime.LockOSThread() // with the rights of another user if this is root
		defer runtime.UnlockOSThread()
		user := os.Geteuid()
		testkit.Must(t, unix.Setfsuid(max(user, 1)))
		s.Make("n", func(error) {
			testkit.Must(t, unix.Setfsuid(user))
			testkit.Must(t, os.Chmod(dir, 0o755))
		})
		testkit.Must(t, unix.Setfsuid(user))
		testkit.OnlyFile(t, used)
	})
}

// A sweep takes the dead only, and only those that are old enough.
func TestSweep(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		s := openAt(t, url, "virtual", 0)
		live := locktest.AcquireAtOnce(t, s, "live", locktest.TTL(keptTTL))
		keep(t, live)
		held := locktest.AcquireAtOnce(t, s, "held", locktest.Hold(time.Hour))
		testkit.Must(t, locktest.ReleaseUntilAnswered(held))
		waiting := locktest.Enqueue(t, s, "live", locktest.TTL(keptTTL))
		dead := locktest.AcquireAtOnce(t, s, "dead", locktest.TTL(keptTTL))
		locktest.ExpectSwept(t, s, time.Hour, 0)
		locktest.ExpectSwept(t, s, 0, 1)
		if _, err := dead.Renew(background); err == nil {
			t.Error("the dead one renews")
		}
		if waiting.HasEnded() || len(locktest.List(t, s, "live")) != 2 || len(locktest.List(t, s, "held")) != 1 {
			t.Errorf("what is left: %+v", locktest.List(t, s, ""))
		}
		locktest.ExpectSwept(t, s, 0, 0)
	})
}

// A directory where it may not write keeps a sweep from nothing else.
func TestSweepGoesOn(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, dir := open(url), directory(t, url)
		testkit.Must(t, os.Chmod(dir, 0o777))
		locktest.Release(t, locktest.AcquireAtOnce(t, s, "a"))
		l := locktest.AcquireAtOnce(t, s, "b", locktest.TTL(shortTTL))
		record := testkit.OnlyFile(t, dir+"/"+locks.KeyOf("b").String()+"/data/*")
		text, err := os.ReadFile(record)
		testkit.Must(t, err)
		locktest.Release(t, l)
		dead := filepath.Dir(record) + "/" + strings.Repeat("ab", 16) + "-0"
		testkit.Must(t, os.WriteFile(dead, text, 0o600))
		testkit.Must(t, os.Chmod(dead, 0o666))
		denied := dir + "/" + locks.KeyOf("a").String()
		testkit.Must(t, os.Chmod(denied, 0o555))
		out, err := process(t, order{URL: url, Sweep: time.Nanosecond}).CombinedOutput()
		if err == nil || !strings.Contains(string(out), denied) {
			t.Errorf("the sweep says %v, %s; want that it may not write in %s", err, out, denied)
		}
		if _, err := os.Stat(dead); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("in the other directory the dead one is left: %v", err)
		}
	})
}

// While the maker of a directory is held up another one finishes it. Then the slow one
// changes nothing.
func TestSlowMaker(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		for at, n := range map[string]string{"commit": "first version", "built": "head"} {
			slow, s := open(url), open(url)
			slow.Keep(churned)
			s.Keep(churned)
			before(slow, at, func() {
				locktest.AcquireAtOnce(t, s, n)
				for range 2 * churned {
					w := locktest.Enqueue(t, s, n)
					w.Leave()
				}
			})
			locktest.ExpectBusy(t, slow, n)
		}
	})
}

// A record that no state knows lives for as long as it says.
func TestSweepOfALoneRecord(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		s := openAt(t, url, "one", 0)
		l := locktest.AcquireAtOnce(t, s, "n", locktest.TTL(keptTTL))
		record := testkit.OnlyFile(t, directory(t, url)+"/*/data/*")
		text, err := os.ReadFile(record)
		testkit.Must(t, err)
		testkit.Must(t, os.WriteFile(filepath.Dir(record)+"/"+strings.Repeat("ab", 16)+"-0", text, 0o600))
		locktest.Release(t, l)
		began := time.Now()
		locktest.ExpectSwept(t, openAt(t, url, "two", 0), 0, 1)
		testkit.Lasted(t, began, keptTTL, 2*keptTTL)
	})
}

// A FUSE file system may show an old state, which is not what somebody has removed.
func TestRemovedFrom(t *testing.T) {
	s := open("mkdir:///x")
	for fileSystem, want := range map[string]string{
		"fuse.sshfs": "shows a client an old state", "fuse": "was removed", "nfs4": "was removed", "": "was removed",
	} {
		locktest.ExpectError(t, s.RemovedFrom(fileSystem), want)
	}
}
