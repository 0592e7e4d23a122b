//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/etcd/etcdtest"
	"golock/test/islands"
	"golock/test/testkit"
)

// quorum is etcd on three hosts. The golocks of a host ask the member on that host first.
type quorum struct {
	*etcdtest.Cluster
	network islands.Network
	disk    string // a small disk with the data of the first member
	leader  int    // the member that led when the last fault began
}

func newQuorum(t *testing.T, n islands.Network) system {
	q := &quorum{network: n, disk: t.TempDir()}
	testkit.Must(t, unix.Mount("tmpfs", q.disk, "tmpfs", 0, "size=192m"))
	t.Cleanup(func() { _ = unix.Unmount(q.disk, unix.MNT_DETACH) })
	q.Cluster = etcdtest.StartClusterAt(t, n.Sites(0, 1, 2))
	first := q.Nodes[0]
	first.Kill()
	data := filepath.Join(first.Dir, "data")
	testkit.Output(t, "", "mv", data, q.disk)
	testkit.Must(t, os.Symlink(filepath.Join(q.disk, "data"), data))
	first.Restart()
	testkit.Eventually(t, "all members are there", q.Healthy)
	return q
}

func (q *quorum) url(host int) string { return q.URL(max(host, 0)) }

func (q *quorum) repaired() bool { return q.Healthy() }

func (q *quorum) faults() []fault {
	node := func(i int) *etcdtest.Server { return q.Nodes[(q.leader+i)%hosts] }
	find := func() { q.leader = q.Leader() }
	nobody := func() []int { find(); return nil }
	minority := func(i int) func() []int {
		return func() []int { find(); return []int{(q.leader + i) % hosts} }
	}
	cut := func(i int, off bool) func(t *testing.T) {
		return func(t *testing.T) { testkit.Must(t, q.network[(q.leader+i)%hosts].Cut(off)) }
	}
	old := q.Nodes[0].RevokesLate()
	all := func() []int { find(); return []int{0, 1, 2} }
	var snapshot string
	return append([]fault{
		{name: "leader killed, back after 10 s", lasts: 10 * time.Second, cutOff: nobody, maxPause: 5 * time.Second,
			begin: func(*testing.T) { node(0).Kill() }, end: func(*testing.T) { node(0).Restart() }},
		{name: "leader stopped for 10 s", lasts: 10 * time.Second, cutOff: nobody, maxPause: 5 * time.Second, revokes: old,
			begin: func(*testing.T) { node(0).Pause() }, end: func(*testing.T) { node(0).Resume() }},
		{name: "leader and the golocks of its host cut off for 30 s", lasts: 30 * time.Second, cutOff: minority(0),
			maxPause: 5 * time.Second, begin: cut(0, true), end: cut(0, false)},
		{name: "another member and the golocks of its host cut off for 30 s", lasts: 30 * time.Second, cutOff: minority(1),
			maxPause: 5 * time.Second, begin: cut(1, true), end: cut(1, false)},
		{name: "two of three members stopped for 20 s", lasts: 20 * time.Second,
			cutOff: all, revokes: old,
			begin: func(*testing.T) { node(0).Pause(); node(1).Pause() },
			end:   func(*testing.T) { node(0).Resume(); node(1).Resume() }},
		{name: "disk of a member full for 20 s", lasts: 20 * time.Second, cutOff: nobody, maxPause: 5 * time.Second,
			begin: func(t *testing.T) {
				_ = exec.Command("dd", "if=/dev/zero", "of="+q.disk+"/filler", "bs=64k").Run() // dd ends when the disk is full
			},
			end: func(t *testing.T) {
				t.Logf("the member with the full disk runs: %t", q.Nodes[0].Running())
				testkit.Must(t, os.Remove(q.disk+"/filler"))
				if !q.Nodes[0].Running() {
					q.Nodes[0].Restart()
				}
			}},
		{name: "a member comes back with data of 20 s ago", lasts: 10 * time.Second, cutOff: nobody, maxPause: 5 * time.Second,
			begin: func(t *testing.T) {
				second := q.Nodes[1]
				second.Kill()
				snapshot = filepath.Join(second.Dir, "old")
				testkit.Output(t, "", "cp", "-a", filepath.Join(second.Dir, "data"), snapshot)
				second.Restart()
				time.Sleep(20 * time.Second) // the other members go on, so that the snapshot becomes old
				second.Kill()
				testkit.Must(t, os.Rename(filepath.Join(second.Dir, "data"), filepath.Join(second.Dir, "new")))
				testkit.Must(t, os.Rename(snapshot, filepath.Join(second.Dir, "data")))
				t.Logf("the start of the member with the old data: %v", second.TryRestart())
			},
			end: func(t *testing.T) {
				second := q.Nodes[1]
				t.Logf("the member with the old data runs: %t", second.Running())
				second.Kill()
				testkit.Must(t, os.RemoveAll(filepath.Join(second.Dir, "data")))
				testkit.Must(t, os.Rename(filepath.Join(second.Dir, "new"), filepath.Join(second.Dir, "data")))
				second.Restart()
			}},
	}, q.restores(all)...)
}

// restores returns the faults in which the cluster is stopped, and comes back with a backup from before all slots were
// taken. A slot that the backup does not have is lost. Its holder's command has ended if the cluster was away for a TTL;
// otherwise it ends beside the next one.
func (q *quorum) restores(all func() []int) (faults []fault) {
	for _, away := range []time.Duration{0, leaseTime} {
		name := "restored from an old backup at once"
		if away > 0 {
			name = fmt.Sprintf("restored from an old backup %v after it was stopped", away)
		}
		var backup string
		faults = append(faults, fault{
			name: name, forgets: true, revokes: away == 0, cutOff: all,
			prepare: func(*testing.T) { backup = q.Nodes[1].Backup() },
			begin: func(*testing.T) {
				for _, one := range q.Nodes {
					one.Kill()
				}
				time.Sleep(away)
				for _, one := range q.Nodes {
					one.Restore(backup)
				}
				for _, one := range q.Nodes {
					one.Restart()
				}
			},
			end: func(*testing.T) {},
		})
	}
	return faults
}
