//go:build integration

package redis_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// levels examines a store and demands findings of these levels.
func levels(t *testing.T, url string, level locks.Level, subjects ...string) map[string]locks.Finding {
	t.Helper()
	found := locktest.Examine(t, open(t, url))
	for _, subject := range subjects {
		locktest.ExpectFinding(t, found, subject, level)
	}
	return found
}

// nothingLeft demands that a server is empty.
func nothingLeft(t *testing.T, server *redistest.Server) {
	t.Helper()
	if keys := server.Do("KEYS", "*").([]any); len(keys) != 0 {
		t.Errorf("left behind: %v", keys)
	}
}

// A good server: no problem, and nothing stays behind.
func TestDoctorGood(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	found := levels(t, server.URL(), locks.OK,
		"version", "maxmemory-policy", "persistence", "replicas", "test lock", "wake-up")
	for subject, f := range found {
		if f.Level != locks.OK {
			t.Errorf("%s: %+v", subject, f)
		}
	}
	nothingLeft(t, server)
}

// Slow: doctor waits for the quarantine of a server that was just started.
func TestDoctorEviction(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
	locktest.ExpectFinding(t, levels(t, server.URL(), locks.Problem, "maxmemory-policy"), "persistence", locks.Note)
	server.Do("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	levels(t, server.URL(), locks.Problem, "maxmemory-policy")
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	levels(t, server.URL(), locks.OK, "maxmemory-policy")
}

func TestDoctorRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locktest.ExpectFinding(t, levels(t, user(t, server, "-info", "-config"), locks.Problem, "INFO"), "test lock", locks.OK)
	levels(t, user(t, server, "-info")+"?quarantine=0", locks.Note, "INFO")
	found := levels(t, user(t, server, "-subscribe", "resetchannels", "+info"), locks.Note, "wake-up")
	locktest.ExpectFinding(t, found, "test lock", locks.OK)
	levels(t, user(t, server, "-@scripting"), locks.Problem, "test lock")
}

// Slow: a replica takes seconds to connect.
func TestDoctorReplica(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := master.Replica()
	locktest.ExpectFinding(t, levels(t, master.URL(), locks.Note, "replicas"), "replicas", locks.Note, "is not set")
	levels(t, master.URL("min-replicas=1"), locks.OK, "replicas")
	levels(t, master.URL("min-replicas=2"), locks.Problem, "replicas")
	found := levels(t, replica.URL("quarantine=0"), locks.Problem, "role")
	if f, ok := found["test lock"]; ok {
		t.Errorf("tried all the same: %+v", f)
	}
	master.Replica()
	locktest.ExpectFinding(t, levels(t, master.URL("min-replicas=1"), locks.Note, "replicas"), "replicas", locks.Note, "2 connected")
}

// Where another server takes over by itself, leases must wait for replicas, or the server must.
// Slow: sentinels and a cluster take seconds to become complete.
func TestDoctorFailover(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"sentinel", "cluster"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			r := withReplica[way](t)
			replicas := func(level locks.Level, what string, options ...string) {
				t.Helper()
				options = append(options, "quarantine=0")
				all, err := open(t, r.url(options...)).Examine(background, time.Minute)
				testkit.Must(t, err)
				if !slices.ContainsFunc(all, func(f locks.Finding) bool {
					return f.Subject == "replicas" && f.Level == level && strings.Contains(f.What, what)
				}) {
					t.Errorf("%+v, want a %s about replicas with %q", all, level, what)
				}
			}
			replicas(locks.Problem, "1 connected, and no grant or renewal waits")
			if way == "sentinel" {
				replicas(locks.OK, "when 1 have it", "min-replicas=1")
			} else { // the other masters have no replicas
				replicas(locks.Problem, "0 connected, and ?min-replicas=1", "min-replicas=1")
			}
			r.master.Do("ACL", "SETUSER", "default", "-config")
			replicas(locks.Problem, "cannot be seen")
			r.master.Do("ACL", "SETUSER", "default", "+config")
			r.master.Do("CONFIG", "SET", "min-replicas-to-write", "1")
			replicas(locks.Note, "fewer than 1 have answered for 10s")
			r.master.Do("CONFIG", "SET", "min-replicas-max-lag", "0")
			replicas(locks.Problem, "is not set")
		})
	}
}

// Behind Sentinel it is the master that is looked at; in a Cluster each.
// Slow: sentinels and a cluster take seconds to become complete.
func TestDoctorMany(t *testing.T) {
	t.Parallel()
	sentinels := redistest.StartSentinel(t)
	locktest.ExpectFinding(t, levels(t, sentinels.URL(), locks.Problem, "replicas"), "test lock", locks.OK)
	c := redistest.StartCluster(t)
	levels(t, c.URL("quarantine=0"), locks.OK, "cluster", "maxmemory-policy", "test lock", "wake-up")
	c.Nodes[1].Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
	s := open(t, c.URL("quarantine=0"))
	all, err := s.Examine(background, time.Minute)
	testkit.Must(t, err)
	problems := 0
	for _, f := range all {
		if f.Level == locks.Problem && f.Subject == "maxmemory-policy" {
			problems++
		}
	}
	if problems != 1 {
		t.Errorf("%+v", all)
	}
	for _, n := range c.Nodes {
		nothingLeft(t, n)
	}
}

// A server that is far away: two renewals that have to connect first do not fit into the TTL.
// Slow: every answer is delayed, and doctor asks for many.
func TestDoctorSlow(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t))
	proxy.Judge(func(string) redistest.Verdict {
		time.Sleep(200 * time.Millisecond)
		return redistest.Pass
	})
	found, err := open(t, proxy.URL()).Examine(background, time.Second)
	testkit.Must(t, err)
	isSlow := func(f locks.Finding) bool {
		tells := strings.Contains(f.Fix, "--ttl of at least") || strings.Contains(f.What, "timeout")
		return f.Subject == "test lock" && f.Level == locks.Problem && tells
	}
	if !slices.ContainsFunc(found, isSlow) {
		t.Errorf("%+v, want a test lock that is too slow", found)
	}
}
