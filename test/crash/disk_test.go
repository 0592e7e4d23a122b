//go:build integration

package crash_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// The disk of a database is full for as long as a lease lasts. The job goes on or ends with 79, a
// run that does not wait gets 69 or 75, one that waits runs when there is room again; never two at
// once. (Redis refuses to write then: TestPassingReplies.)
// Slow: a lease has to end.
func TestFullDiskOfADatabase(t *testing.T) {
	onSQL(t, func(t *testing.T, start sqlStarter) {
		s := start(t)
		database := s.NewDatabase(t)
		moveToSmallDisk(t, s)
		_, err := s.TryExec(database, "CREATE TABLE filler (t TEXT)")
		testkit.Must(t, err)
		r := newRow(leasing(t, s.URL(database, "quarantine=0s"), lesserTTL), 1)
		filler := filepath.Join(s.Dir, "filler")
		if out, err := exec.Command("dd", "if=/dev/zero", "of="+filler, "bs=1M").CombinedOutput(); err == nil {
			t.Fatalf("the disk is not full: %s", out)
		}
		testkit.Eventually(t, "the server cannot write", func() bool {
			_, err := s.TryExec(database, "INSERT INTO filler VALUES (REPEAT('x', 50000))")
			return err != nil
		})
		newcomer := r.start("-n")
		newcomer.judged = true
		if end := newcomer.Wait(); end.Code != 69 && end.Code != 75 || r.begun(newcomer) {
			t.Errorf("-n on a full disk: %v", end)
		}
		time.Sleep(lesserTTL) // until the lease is over, unless it was renewed
		testkit.Must(t, os.Remove(filler))
		s.Kill() // one that has met a full disk may be ending, or hang
		s.Restart(t)
		r.holder.release()
		if end := r.holder.Wait(); end.Code != 0 && end.Code != 79 {
			t.Errorf("the holder: %v", end)
		}
		r.holder.judged = true
		r.finishInOrder(r.queue...)
	})
}

// The directory of a store is removed, or moved away, and made again: those that hold and those
// that wait learn of it, long before a lease would end, and who comes then finds a slot.
func TestRemadeDirectory(t *testing.T) {
	t.Parallel()
	testkit.Each(t, map[string]func(string) error{
		"mkdir": os.RemoveAll,
		"excl":  func(dir string) error { return os.Rename(dir, dir+".moved") },
	}, func(t *testing.T, scheme string, remove func(string) error) {
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
		r.start()
		r.finish()
	})
}

// moveToSmallDisk moves a server to a disk that is soon full.
func moveToSmallDisk(t *testing.T, s *sqltest.Server) {
	t.Helper()
	s.Stop()
	away := s.Dir + ".away"
	testkit.Output(t, "", "cp", "-a", s.Dir, away)
	testkit.Must(t, unix.Mount("tmpfs", s.Dir, "tmpfs", 0, "size=256m,mode=755"))
	t.Cleanup(func() { testkit.Must(t, unix.Unmount(s.Dir, unix.MNT_DETACH)) })
	testkit.Output(t, "", "cp", "-a", away+"/.", s.Dir)
	testkit.Must(t, os.RemoveAll(away))
	s.Restart(t)
}
