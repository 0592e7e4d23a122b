//go:build integration

package crash_test

import (
	"strings"
	"testing"

	"golock/locks/etcd/etcdtest"
	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// herd is how many hosts are in one.
const herd = 25

// herds are stores with far fewer connections than a herd has hosts.
var herds = map[string]func(t *testing.T) string{
	"postgres": func(t *testing.T) string {
		s := sqltest.StartPostgres(t, "max_connections=15")
		return s.URL(s.NewDatabase(t), "quarantine=0s")
	},
	"mariadb": func(t *testing.T) string {
		s := sqltest.StartMaria(t, "max-connections=10")
		return s.URL(s.NewDatabase(t), "quarantine=0s")
	},
	"pgbouncer": func(t *testing.T) string {
		s := sqltest.StartPostgres(t)
		b := sqltest.StartBouncer(t, s, sqltest.Transaction, "max_client_conn=10", "default_pool_size=2")
		return b.URL(s.NewDatabase(t), "quarantine=0")
	},
	"redis": func(t *testing.T) string {
		return redistest.Start(t, "--maxclients", "10").URL("quarantine=0s")
	},
	"etcd":  func(t *testing.T) string { return etcdtest.StoreURL(t) },
	"mkdir": func(t *testing.T) string { return "mkdir://" + testkit.Place(t, 0o755) },
}

// A crontab line of 25 hosts: one of them runs the command, the others end as if it was busy.
// Nobody gets a mail because the server has too few connections for all of them. With -n a busy
// machine could need more than the ten seconds; --max-queue 0 asks the same for a minute.
// One store after the other, alone: hundreds of processes that want two cores are no herd of hosts.
func TestHerd(t *testing.T) {
	for name, url := range herds {
		t.Run(name, func(t *testing.T) { testHerd(t, url(t)) })
	}
}

func testHerd(t *testing.T, url string) {
	s := testkit.New(t, url)
	s.Job("--", "true").Run().Expect(t, 0) // a server that was just started makes its table
	var all []*testkit.Process
	for range herd {
		all = append(all, s.Job("--max-queue", "0", "-E", "0", "--hold", "4m", "--", "echo", "ran").Begin())
	}
	ran := 0
	for _, p := range all {
		r := p.Wait()
		ran += strings.Count(r.Stdout, "ran\n")
		if r.Code != 0 || r.Stderr != "" {
			t.Errorf("code %d: %s", r.Code, r.Stderr)
		}
	}
	if ran != 1 {
		t.Errorf("%d commands ran, want one", ran)
	}
}
