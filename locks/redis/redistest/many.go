package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// masterName is what the sentinels call the master.
const masterName = "lockmaster"

// Sentinels is a master and its replicas, watched by three sentinels.
type Sentinels struct {
	Master, Replica *Server // Replica is one of the replicas
	Servers         []*Server
	Sentinels       []*Server
}

// StartSentinel starts a master, a replica and the sentinels, and waits until they know each other.
func StartSentinel(t testing.TB) *Sentinels {
	t.Helper()
	return startSentinel(t, []server.Site{server.Here(), server.Here()}, []server.Site{server.Here(), server.Here(), server.Here()})
}

// StartSentinelAt starts a server, the first of which is the master, and a sentinel at each of
// three sites.
func StartSentinelAt(t testing.TB, sites []server.Site) *Sentinels {
	t.Helper()
	return startSentinel(t, sites, sites)
}

func startSentinel(t testing.TB, servers, sentinels []server.Site) *Sentinels {
	t.Helper()
	s := &Sentinels{Master: StartAt(t, servers[0])}
	s.Servers = []*Server{s.Master}
	for _, at := range servers[1:] {
		s.Replica = s.Master.replicaAt(at)
		s.Servers = append(s.Servers, s.Replica)
	}
	for _, at := range sentinels {
		one, err := newServer(t, at, "redis-sentinel")
		testkit.Must(t, err)
		t.Cleanup(one.Discard)
		one.args = func() []string {
			file := filepath.Join(one.Dir, "sentinel.conf")
			text := fmt.Sprintf("bind %s\nport %d\ndir %s\nlogfile %s/log\n"+
				"sentinel monitor %[5]s %[6]s %[7]d 2\nsentinel down-after-milliseconds %[5]s 1000\nsentinel failover-timeout %[5]s 5000\n",
				one.Host, one.Port, one.Dir, one.Dir, masterName, s.Master.Host, s.Master.Port)
			testkit.Must(t, os.WriteFile(file, []byte(text), 0o600))
			return []string{file}
		}
		testkit.Must(t, one.startSomewhere())
		s.Sentinels = append(s.Sentinels, one)
	}
	testkit.Eventually(t, "the sentinels know each other", s.Complete)
	return s
}

// Complete reports whether all sentinels see the same master, and all other servers are its replicas.
func (s *Sentinels) Complete() bool {
	master := ""
	for _, one := range s.Sentinels {
		text, err := one.Try("INFO", "sentinel")
		if err != nil {
			return false
		}
		_, state, _ := strings.Cut(text.(string), "status=ok,address=")
		addr, rest, _ := strings.Cut(state, ",")
		known := fmt.Sprintf("slaves=%d,sentinels=%d", len(s.Servers)-1, len(s.Sentinels))
		if !strings.HasPrefix(rest, known) || master != "" && addr != master {
			return false
		}
		master = addr
	}
	for _, one := range s.Servers {
		if one.Addr() == master {
			text, err := one.Try("INFO", "replication")
			return err == nil && strings.Contains(text.(string), fmt.Sprintf("connected_slaves:%d\r", len(s.Servers)-1))
		}
	}
	return false
}

// URL returns the URL of a store at the sentinels' master.
func (s *Sentinels) URL(options ...string) string {
	return server.WithOptions("redis+sentinel://"+addresses(s.Sentinels)+"/"+masterName, options)
}

// Cluster is three masters, and perhaps replicas.
type Cluster struct{ Nodes []*Server }

// StartCluster starts them and waits until the cluster is complete.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	return StartClusterAt(t, []server.Site{server.Here(), server.Here(), server.Here()}, nil)
}

// StartClusterAt starts a cluster with a master at each of three sites, and replicas of the first
// of them, which come after the masters.
func StartClusterAt(t testing.TB, masters, replicas []server.Site, options ...string) *Cluster {
	t.Helper()
	c := &Cluster{}
	options = append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000"}, options...)
	for _, at := range slices.Concat(masters, replicas) {
		c.Nodes = append(c.Nodes, StartAt(t, at, options...))
	}
	const slots = 16384
	for i, n := range c.Nodes {
		if i < len(masters) {
			n.Do("CLUSTER", "ADDSLOTSRANGE", i*slots/len(masters), (i+1)*slots/len(masters)-1)
		}
		n.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i > 0 {
			n.Do("CLUSTER", "MEET", c.Nodes[0].Host, c.Nodes[0].Port)
		}
	}
	known := fmt.Sprintf("cluster_known_nodes:%d", len(c.Nodes))
	for _, n := range c.Nodes {
		testkit.Eventually(t, "the cluster is complete", func() bool {
			text, _ := n.Do("CLUSTER", "INFO").(string)
			return strings.Contains(text, "cluster_state:ok") && strings.Contains(text, known)
		})
	}
	for _, n := range c.Nodes[len(masters):] {
		n.Do("CLUSTER", "REPLICATE", c.Nodes[0].Do("CLUSTER", "MYID"))
	}
	testkit.Eventually(t, "the replicas follow", func() bool {
		return c.Nodes[0].Info("replication", "connected_slaves") == strconv.Itoa(len(replicas))
	})
	return c
}

// NameAt finds a name whose lock lives on the first node, or if first is false on another node.
func (c *Cluster) NameAt(first bool) string {
	for n := 0; ; n++ {
		name := fmt.Sprint("n", n)
		slot := c.Nodes[0].Do("CLUSTER", "KEYSLOT", "{"+locks.KeyOf(name).String()+"}").(int64)
		if first == (slot < 16384/3) {
			return name
		}
	}
}

// URL returns the URL of a store on the cluster.
func (c *Cluster) URL(options ...string) string {
	return server.WithOptions("redis+cluster://"+addresses(c.Nodes), options)
}

func addresses(servers []*Server) string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return strings.Join(list, ",")
}
