package files_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/files"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// A hold outlives its process, and each machine counts it on its own clock.
func TestHold(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		s, other := openAt(t, url, "one", 0), openAt(t, url, "other", -time.Hour)
		const length = 6 * time.Second
		began := time.Now()
		l := locktest.AcquireAtOnce(t, s, "n", locktest.Hold(length), locktest.TTL(shortTTL))
		testkit.Must(t, locktest.ReleaseUntilAnswered(l))
		locktest.ExpectBusy(t, s, "n")
		locktest.ExpectBusy(t, other, "n")
		e := locktest.List(t, s, "n")
		if len(e) != 1 || e[0].HeldTill.Before(began) || e[0].HeldTill.After(time.Now().Add(length)) {
			t.Errorf("entries %+v", e)
		}
		locktest.Enqueue(t, s, "n").ExpectGrant()
		testkit.Lasted(t, began, length, time.Hour)
	})
}

// Who waits goes on when the directory that was away, with its mount, is back.
func TestDirectoryAway(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		s := open(url)
		l, w := locktest.AcquireAtOnce(t, s, "n"), locktest.Enqueue(t, s, "n")
		dir := directory(t, url)
		testkit.Must(t, os.Rename(dir, dir+".away"))
		time.Sleep(5 * time.Second) // in virtual time: it looks many times
		w.ExpectWaiting()
		testkit.Must(t, os.Rename(dir+".away", dir))
		testkit.Must(t, locktest.ReleaseUntilAnswered(l))
		w.ExpectGrant()
	})
}

// Runs that do not wait, each a process of its own, do not keep a dead holder
// alive by seeing it for the first time.
func TestDeadHolderAmongThoseWhoDoNotWait(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprint("its record is gone: ", gone), func(t *testing.T) {
			onOne(t, func(t *testing.T, url string) {
				l := locktest.AcquireAtOnce(t, open(url), "n", locktest.TTL(shortTTL))
				if gone {
					record := testkit.OnlyFile(t, directory(t, url)+"/*/data/*")
					testkit.Must(t, os.Remove(record))
				}
				began := time.Now()
				testkit.Eventually(t, "one of them is granted", func() bool {
					s := open(url)
					s.SetClock("another machine's", locks.BootTime)
					admission, err := s.Join(background, locktest.NewRequest(t, "n", locktest.NoWait))
					if err != nil {
						return false
					}
					lease, err := admission.Wait(background)
					return err == nil && locktest.ReleaseUntilAnswered(lease) == nil
				})
				if took := time.Since(began); locks.BootTime() < l.Term().End() {
					t.Errorf("granted after %v, before the end of the term", took)
				}
			})
		})
	}
}

// No clock of another machine has a part in anything: neither its CLOCK_BOOTTIME
// nor the times of files.
func TestClocksOfOthers(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		l := locktest.AcquireAtOnce(t, openAt(t, url, "holder", 0), "n", locktest.TTL(keptTTL))
		stop := keep(t, l)
		var waiters []*locktest.Waiter
		for i, off := range []time.Duration{time.Hour, -time.Hour, 0} {
			s := openAt(t, url, fmt.Sprint("machine ", i), off)
			waiters = append(waiters, locktest.Enqueue(t, s, "n", locktest.Limit(3)))
			locktest.ExpectBusy(t, s, "n")
		}
		odd := []time.Time{time.Now().Add(time.Hour), time.Now().Add(-time.Hour)}
		first := l.Term()
		for n := 0; l.Term().Asked.Sub(first.Asked) < 2*keptTTL; n++ {
			files, _ := filepath.Glob(directory(t, url) + "/*/*/*")
			for _, f := range files {
				_ = os.Chtimes(f, odd[n%2], odd[n%2])
			}
			for _, w := range waiters {
				if w.HasEnded() {
					t.Fatalf("granted beside a holder that renews, or not kept: %v", w.Err)
				}
			}
			time.Sleep(keptTTL / 20)
		}
		stop()
		last := l.Term().End()
		for _, w := range waiters {
			w.ExpectGrant()
			if now() < last {
				t.Errorf("granted %v before the end of the last term", last.Sub(now()))
			}
		}
	})
}

// Stores of all three primitives may use one directory, and remove each other's versions.
func TestPrimitivesTogether(t *testing.T) {
	t.Parallel()
	dir := memory(t)
	var stores []*files.Store
	for _, scheme := range schemes {
		stores = append(stores, open(scheme+"://"+dir))
		stores[len(stores)-1].Keep(3)
	}
	for i := range 4 * len(stores) {
		l := locktest.AcquireAtOnce(t, stores[i%len(stores)], "n")
		locktest.ExpectBusy(t, stores[(i+1)%len(stores)], "n")
		w := locktest.Enqueue(t, stores[(i+2)%len(stores)], "n")
		locktest.Release(t, l)
		locktest.Release(t, w.ExpectGrant())
	}
	if left, err := filepath.Glob(dir + "/*/[vt]?"); err != nil || len(left) > 0 {
		t.Errorf("left of the first versions: %v, %v", left, err)
	}
	sweepAll(t, stores[0].URL())
}

// latest is the file of the highest version of the only name.
func latest(t testing.TB, url string) string {
	t.Helper()
	versions, err := filepath.Glob(directory(t, url) + "/*/v*")
	if err != nil || len(versions) == 0 {
		t.Fatal(versions, err)
	}
	slices.SortFunc(versions, func(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) })
	path := versions[len(versions)-1]
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path += "/state"
	}
	return path
}

// A release grants the slot to the next waiter, which need not have run meanwhile.
func TestReleaserGrants(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, other := open(url), open(url)
		l := locktest.AcquireAtOnce(t, s, "n")
		admission, err := other.Join(background, locktest.NewRequest(t, "n"))
		if err != nil || !admission.Queued() {
			t.Fatalf("Join = %v, %v", admission, err)
		}
		locktest.Release(t, l)
		locktest.ExpectEntries(t, s, "n", locktest.Counts{Holding: 1})
		granted, err := admission.Wait(background)
		testkit.Must(t, err)
		locktest.Release(t, granted)
	})
}

// A release is announced in the record first. A listing shows the holder until a version
// says so too: a newcomer, whose version was decided before, may wait for it.
func TestLookWhileOneLeaves(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, other := open(url), open(url)
		l := locktest.AcquireAtOnce(t, s, "n")
		said, goOn, released := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		before(s, "list", func() {
			close(said)
			<-goOn
		})
		before(other, "write", func() {
			go func() { released <- l.Release(background) }()
			<-said
			if h := locktest.CountEntries(t, open(url), "n").Holding; h != 1 {
				t.Errorf("%d hold", h)
			}
		})
		admission, err := other.Join(background, locktest.NewRequest(t, "n"))
		if err != nil || !admission.Queued() {
			t.Errorf("Join = %v, %v", admission, err)
		}
		close(goOn)
		testkit.Must(t, <-released)
		_, err = admission.Wait(background)
		testkit.Must(t, err)
	})
}

// The state of a name is small, and old versions go.
func TestOldVersionsGo(t *testing.T) {
	t.Parallel()
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			url := scheme + "://" + memory(t)
			s := open(url)
			for range 80 {
				locktest.Release(t, locktest.AcquireAtOnce(t, s, "n"))
			}
			names, err := filepath.Glob(directory(t, url) + "/*/*")
			testkit.Must(t, err)
			if len(names) < 32 || len(names) > 150 {
				t.Errorf("%d files are left", len(names))
			}
			text, err := os.ReadFile(latest(t, url))
			testkit.Must(t, err)
			if len(text) == 0 || len(text) > 60 {
				t.Errorf("the state of a name that nobody uses is %q", text)
			}
		})
	}
}

// A queue that has not moved for long moves at once, and not only at its front.
func TestQueueMovesAfterRest(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		s := openAt(t, url, "virtual", 0)
		l := locktest.AcquireAtOnce(t, s, "n", locktest.TTL(time.Hour))
		var waiters []*locktest.Waiter
		for range 30 {
			waiters = append(waiters, locktest.Enqueue(t, s, "n", locktest.TTL(time.Hour)))
		}
		time.Sleep(time.Minute) // the queue does not move for a minute of virtual time
		begun := time.Now()
		locktest.Release(t, l)
		for _, w := range waiters {
			locktest.Release(t, w.ExpectGrant())
		}
		testkit.Lasted(t, begun, 0, 400*time.Millisecond)
	})
}
