//go:build integration

package campaign_test

import (
	"testing"

	"golock/locks/redis/redistest"
	"golock/test/islands"
	"golock/test/testkit"
)

// replicatedServers are a master on the first of three islands, and what takes over, with a replica
// of its own, on the others. They give the URL of a store and the name of a lock that the master has.
var replicatedServers = map[string]func(t *testing.T, n islands.Network) (url, name string){
	"sentinel": func(t *testing.T, n islands.Network) (url, name string) {
		return redistest.StartSentinelAt(t, n.Sites(0, 1, 2)).URL("quarantine=0", "min-replicas=1"), "job"
	},
	"cluster": func(t *testing.T, n islands.Network) (url, name string) {
		// A master without the others takes no writes after this time, in which a renewal comes.
		c := redistest.StartClusterAt(t, n.Sites(0, 1, 2), n.Sites(1, 2), "--cluster-node-timeout", "6000")
		return c.URL("quarantine=0", "min-replicas=1"), c.NameAt(true)
	},
}

// A holder on the wrong side of a partition, with the master, is dead before the other side, which
// has another master by then, grants its slot. The kernel says so: the command locks a file.
// Slow: servers must find out that the master is gone, and a lease must end.
func TestPartition(t *testing.T) {
	testkit.Each(t, replicatedServers, func(t *testing.T, _ string, start func(*testing.T, islands.Network) (string, string)) {
		n := islands.New(t, 3)
		url, name := start(t, n)
		s := testkit.New(t, url)
		run := func(i *islands.Island, flock ...string) *testkit.Process {
			flags := []string{"-v", "--ttl", "10", "--", "flock"}
			return s.Lock(name, append(flags, flock...)...).By(i.Enter()...).Start()
		}
		holder := run(n[0], s.Path("alive"), "sh", "-c", "echo runs; exec sleep 1000")
		holder.Expect("runs")
		waiter := run(n[1], "-n", s.Path("alive"), "echo", "alone")
		waiter.Says("waiting")
		testkit.Must(t, n[0].Cut(true))
		waiter.Expects(0)
		waiter.Expect("alone")
		holder.Expects(79, "the slot could not be kept")
	})
}
