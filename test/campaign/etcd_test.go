//go:build integration

package campaign_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"golock/locks/etcd/etcdtest"
	"golock/test/islands"
	"golock/test/testkit"
)

// quorum is etcd on three hosts. A host can be cut off, with its member, and its golocks ask that member
// first. Data is kept in memory, as on a disk that is never too slow.
type quorum struct {
	*etcdtest.Cluster
	network islands.Network
	round   string
	serial  sync.Mutex // one fault at a time: two would leave no majority
}

func openQuorum(t *testing.T, e *engine) site {
	n := islands.New(t, hosts)
	q := &quorum{Cluster: etcdtest.StartClusterAt(t, n.Sites(0, 1, 2)), network: n}
	e.oldLeaders = q.Nodes[0].RevokesLate()
	return q
}

func (q *quorum) begin(p *plan) error {
	q.round = p.name()
	return nil
}

func (q *quorum) skewed() bool { return false }

func (q *quorum) enter(host int) []string { return q.network[host].Enter() }

func (q *quorum) name(name int) string { return fmt.Sprintf("%s-%d", q.round, name) }

func (q *quorum) url(_, host int) string { return q.URL(max(host, 0)) }

// fault hits all: the others have to find a new leader, or have none.
func (q *quorum) fault(f planned) (host int, ok bool) {
	q.serial.Lock()
	defer q.serial.Unlock()
	leader := q.Leader()
	node, other := q.Nodes[leader], q.Nodes[(leader+1)%hosts]
	switch f.Kind {
	case serverKill:
		node.Kill()
		time.Sleep(f.For) // the fault
		node.Restart()
	case serverStop:
		node.Pause()
		time.Sleep(f.For) // the fault
		node.Resume()
	case majorityStop:
		node.Pause()
		other.Pause()
		time.Sleep(f.For) // the fault
		other.Resume()
		node.Resume()
	case netSplit:
		island := q.network[(leader+f.Pick%hosts)%hosts]
		if island.Cut(true) != nil {
			return -1, false
		}
		time.Sleep(f.For) // the fault
		ok = island.Cut(false) == nil
		return -1, ok && testkit.Within(patience, q.Healthy)
	}
	return -1, testkit.Within(patience, q.Healthy)
}
