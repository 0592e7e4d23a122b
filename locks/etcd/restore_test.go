//go:build integration

package etcd_test

import (
	"errors"
	"testing"

	"golock/locks"
	"golock/locks/etcd/etcdtest"
	. "golock/locks/locktest"
	"golock/test/testkit"
)

// A cluster that was restored from a backup knows only who held then. Who has got a slot since hears that it is lost,
// and who has queued since is ahead of newcomers. doctor sees a member that was restored alone.
func TestRestoredFromABackup(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	s := open(t, server.URL())
	long := AcquireAtOnce(t, s, "n")
	backup := server.Backup()
	for range 20 { // the revision grows
		Release(t, AcquireAtOnce(t, s, "m"))
	}
	forgotten := AcquireAtOnce(t, s, "m")
	waiter := Enqueue(t, s, "n")

	twin := server.StartTwin(backup)
	found := Examine(t, open(t, "etcd://"+server.Addr()+","+twin.Addr()))
	ExpectFinding(t, found, "data", locks.Note, twin.Addr()+" is at revision ")
	twin.Kill()

	server.Kill()
	server.Restore(backup)
	server.Restart()
	Renew(t, long)
	_, err := forgotten.Renew(background)
	if !errors.Is(err, locks.ErrLost) {
		t.Errorf("Renew of a slot that the backup does not have = %v, want ErrLost", err)
	}
	AwaitEntries(t, s, "n", Counts{Holding: 1, Waiting: 1})
	newcomer := Enqueue(t, s, "n")
	Release(t, long)
	Release(t, waiter.ExpectGrant())
	Release(t, newcomer.ExpectGrant())
	ExpectFinding(t, Examine(t, s), "data", locks.OK)
	testkit.Must(t, forgotten.Release(background))
}
