//go:build integration

package crash_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// The disk of a database is full for as long as a lease lasts. The job goes on or ends with
// 79, who comes without waiting gets 69 or 75, who waits goes on waiting and runs when there
// is room again; never two at once. Redis cannot write anything then, and says so.
// Slow: a lease has to end.
func TestFullDiskOfADatabase(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T) fullDisk{
		"redis":    redisOnSmallDisk,
		"mariadb":  func(t *testing.T) fullDisk { return sqlOnSmallDisk(t, sqltest.StartMaria(t)) },
		"postgres": func(t *testing.T) fullDisk { return sqlOnSmallDisk(t, sqltest.StartPostgres(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := prepare(t)
			r := newRow(leasing(t, d.url, lesserTTL), 1)
			filler := filepath.Join(d.dir, "filler")
			fill(t, filler)
			d.use()
			newcomer := r.start(spec{max: 1, flags: []string{"-n"}})
			newcomer.judged = true
			if end := newcomer.Wait(); end.Code != 69 && end.Code != 75 || r.begun(newcomer) {
				t.Errorf("-n on a full disk: %v", end)
			}
			time.Sleep(lesserTTL) // until the lease is over, unless it was renewed
			if name == "redis" {
				r.holder.Expects(79, "the slot could not be kept", "MISCONF")
			}
			testkit.Must(t, os.Remove(filler))
			d.recover()
			r.holder.release()
			if end := r.holder.Wait(); end.Code != 0 && end.Code != 79 {
				t.Errorf("the holder: %v", end)
			}
			r.holder.judged = true
			r.finishInOrder(r.queue...)
		})
	}
}

// The directory of a store is removed, or moved away, and made again: who holds and who waits
// learn of it, long before a lease would end, and who comes then finds a slot.
func TestRemadeDirectory(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"mkdir", "symlink", "excl"} {
		for how, remove := range map[string]func(string) error{
			"removed": os.RemoveAll,
			"moved":   func(dir string) error { return os.Rename(dir, dir+".moved") },
		} {
			t.Run(scheme+"/"+how, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(testkit.Place(t, 0o755), "store")
				testkit.Must(t, os.Mkdir(dir, 0o755))
				r := newRow(leasing(t, scheme+"://"+dir, longTTL), 1)
				r.Eventually("it is removed", func() bool { return remove(dir) == nil })
				testkit.Must(t, os.Mkdir(dir, 0o755))
				r.holder.Expects(79, "gone from the store")
				r.queue[0].Expects(69, dir) // does not exist, or was removed while it was in use
				r.holder.judged, r.queue[0].judged = true, true
				if r.begun(r.queue[0]) {
					t.Error("69, and the command has run")
				}
				r.start(spec{max: 1})
				r.finish()
			})
		}
	}
}

// fullDisk is a server whose disk is to be filled.
type fullDisk struct {
	url, dir     string
	use, recover func()
}

func redisOnSmallDisk(t *testing.T) fullDisk {
	dir := testkit.Place(t, 0o755)
	smallDisk(t, dir)
	s := redistest.Start(t, "--dir", dir, "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")
	return fullDisk{
		url: s.URL("quarantine=0s"), dir: dir, recover: func() {},
		use: func() {
			testkit.Eventually(t, "the server cannot write", func() bool {
				_, err := s.Try("SET", "filler", "x")
				return err != nil
			})
		},
	}
}

// sqlOnSmallDisk moves a server to another disk.
func sqlOnSmallDisk(t *testing.T, s *sqltest.Server) fullDisk {
	database := s.NewDatabase(t)
	s.Stop()
	away := s.Dir + ".away"
	testkit.Output(t, "", "cp", "-a", s.Dir, away)
	smallDisk(t, s.Dir)
	testkit.Output(t, "", "cp", "-a", away+"/.", s.Dir)
	testkit.Must(t, os.RemoveAll(away))
	s.Restart(t)
	_, err := s.TryExec(database, "CREATE TABLE filler (t TEXT)")
	testkit.Must(t, err)
	return fullDisk{
		url: s.URL(database, "quarantine=0s"), dir: s.Dir,
		use: func() {
			testkit.Eventually(t, "the server cannot write", func() bool {
				_, err := s.TryExec(database, "INSERT INTO filler VALUES (REPEAT('x', 50000))")
				return err != nil
			})
		},
		recover: func() { // one that has met a full disk may be ending, or hang
			s.Kill()
			s.Restart(t)
		},
	}
}

// smallDisk mounts a disk of a size that is soon full.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	testkit.Must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256m,mode=755"))
	t.Cleanup(func() { testkit.Must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// fill leaves no room on the disk of a file.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	testkit.Must(t, err)
	defer f.Close()
	for _, size := range []int{1 << 20, 1} {
		for block := slices.Repeat([]byte{1}, size); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
}
