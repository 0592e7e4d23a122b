package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// masterName is what the sentinels call the master.
const masterName = "lockmaster"

// Sentinels is a master and a replica, watched by three sentinels.
type Sentinels struct {
	Master, Replica *Server
	Sentinels       []*Server
}

// StartSentinel starts them and waits until they know each other.
func StartSentinel(t testing.TB) *Sentinels {
	t.Helper()
	s := &Sentinels{Master: Start(t)}
	s.Replica = s.Master.Replica()
	for range 3 {
		one, err := newServer(t, "redis-sentinel")
		testkit.Must(t, err)
		t.Cleanup(one.discard)
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
	for _, one := range s.Sentinels {
		testkit.Eventually(t, "the sentinels know each other", func() bool {
			return strings.HasSuffix(one.Info("sentinel", "master0"), "status=ok,address="+s.Master.Addr()+",slaves=1,sentinels=3")
		})
	}
	return s
}

// URL is that of a store at the sentinels' master.
func (s *Sentinels) URL(options ...string) string {
	return server.WithOptions("redis+sentinel://"+addresses(s.Sentinels)+"/"+masterName, options)
}

// Cluster is three masters.
type Cluster struct{ Nodes []*Server }

// StartCluster starts them and waits until the cluster is complete.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{}
	for range 3 {
		c.Nodes = append(c.Nodes, Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"))
	}
	const slots = 16384
	for i, n := range c.Nodes {
		n.Do("CLUSTER", "ADDSLOTSRANGE", i*slots/len(c.Nodes), (i+1)*slots/len(c.Nodes)-1)
		n.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i > 0 {
			n.Do("CLUSTER", "MEET", c.Nodes[0].Host, c.Nodes[0].Port)
		}
	}
	for _, n := range c.Nodes {
		testkit.Eventually(t, "the cluster is complete", func() bool {
			text, _ := n.Do("CLUSTER", "INFO").(string)
			return strings.Contains(text, "cluster_state:ok") && strings.Contains(text, "cluster_known_nodes:3")
		})
	}
	return c
}

// URL is that of a store on the cluster.
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
