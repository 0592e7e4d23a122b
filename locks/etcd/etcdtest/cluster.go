package etcdtest

import (
	"strings"
	"testing"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// Cluster is three servers.
type Cluster struct {
	Nodes []*Server
	t     testing.TB
}

// StartCluster starts three servers and waits until they have a leader.
func StartCluster(t testing.TB, options ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	taken := map[int]bool{}
	port := func() int {
		for {
			n, err := server.FreePort(server.EtcdPorts)
			testkit.Must(t, err)
			if !taken[n] {
				taken[n] = true
				return n
			}
		}
	}
	members := func() string {
		var all []string
		for _, one := range c.Nodes {
			all = append(all, one.member())
		}
		return strings.Join(all, ",")
	}
	for _, name := range []string{"a", "b", "c"} {
		s, err := newServer(t, name, options)
		testkit.Must(t, err)
		t.Cleanup(s.discard)
		s.Port, s.peerPort, s.cluster = port(), port(), members
		c.Nodes = append(c.Nodes, s)
	}
	for _, one := range c.Nodes {
		testkit.Must(t, one.start())
	}
	for _, one := range c.Nodes {
		testkit.Eventually(t, "the cluster has a leader", one.answers)
	}
	return c
}

// URL is that of a store on the cluster, whose first host is that of a node.
func (c *Cluster) URL(first int) string {
	var hosts []string
	for i := range c.Nodes {
		hosts = append(hosts, c.Nodes[(first+i)%len(c.Nodes)].Addr())
	}
	return "etcd://" + strings.Join(hosts, ",")
}

// Leader is the number of the node that is the leader.
func (c *Cluster) Leader() int {
	c.t.Helper()
	leader := -1
	testkit.Eventually(c.t, "there is a leader", func() bool {
		for i, one := range c.Nodes {
			text, err := one.TryControl("endpoint", "status")
			if fields := strings.Split(text, ", "); err == nil && len(fields) > 4 && fields[4] == "true" {
				leader = i
			}
		}
		return leader >= 0
	})
	return leader
}
