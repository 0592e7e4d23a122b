package etcdtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// Cluster is several servers, three as a rule.
type Cluster struct {
	Nodes []*Server
	t     testing.TB
}

// StartCluster starts three servers on loopback and waits until they have a leader.
func StartCluster(t testing.TB, options ...string) *Cluster {
	t.Helper()
	here := server.Here()
	return StartClusterAt(t, []server.Site{here, here, here}, options...)
}

// StartClusterAt starts a server at each site, and waits until they have a leader.
func StartClusterAt(t testing.TB, sites []server.Site, options ...string) *Cluster {
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
	for i, at := range sites {
		s, err := newServer(t, at, string(rune('a'+i)), options)
		testkit.Must(t, err)
		t.Cleanup(s.Discard)
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

// URL returns the URL of a store on the cluster. Its first host is the node with the given number.
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
		leader = slices.IndexFunc(c.Nodes, (*Server).leads)
		return leader >= 0
	})
	return leader
}

// Healthy reports whether all nodes have a leader.
func (c *Cluster) Healthy() bool {
	for _, one := range c.Nodes {
		if !one.answers() {
			return false
		}
	}
	return true
}

// leads reports whether the server takes itself for the leader, and a majority does so too.
func (s *Server) leads() bool {
	if !s.answers() {
		return false
	}
	client := http.Client{Timeout: time.Second}
	answer, err := client.Post("http://"+s.Addr()+"/v3/maintenance/status", "application/json", strings.NewReader("{}"))
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	var status struct {
		Header struct {
			Member string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	err = json.NewDecoder(answer.Body).Decode(&status)
	return err == nil && status.Leader == status.Header.Member
}
