//go:build integration

package redis_test

import (
	"strings"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// A good server: nothing but notes, and nothing stays behind.
func TestDoctorGood(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	found := Examine(t, open(t, server.URL()))
	for subject, f := range found {
		if f.Level != locks.OK {
			t.Errorf("%s: %+v", subject, f)
		}
	}
	for _, subject := range []string{"version", "maxmemory-policy", "persistence", "replicas", "rehearsal", "wake-up"} {
		Level(t, found, subject, locks.OK)
	}
	if keys := server.Do("KEYS", "*"); len(keys.([]any)) != 0 {
		t.Errorf("left behind: %v", keys)
	}
}

// Slow: doctor waits for the quarantine of a server that was just started.
func TestDoctorEviction(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
	found := Examine(t, open(t, server.URL()))
	Level(t, found, "maxmemory-policy", locks.Problem)
	Level(t, found, "persistence", locks.Note)
	server.Do("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	Level(t, Examine(t, open(t, server.URL())), "maxmemory-policy", locks.Problem)
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	Level(t, Examine(t, open(t, server.URL())), "maxmemory-policy", locks.OK)
}

func TestDoctorRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	found := Examine(t, open(t, user(t, server, "-info", "-config")))
	Level(t, found, "INFO", locks.Problem)
	Level(t, found, "rehearsal", locks.OK)
	Level(t, Examine(t, open(t, user(t, server, "-info")+"?quarantine=0")), "INFO", locks.Note)
	found = Examine(t, open(t, user(t, server, "-subscribe", "resetchannels", "+info")))
	Level(t, found, "wake-up", locks.Note)
	Level(t, found, "rehearsal", locks.OK)
	found = Examine(t, open(t, user(t, server, "-@scripting")))
	Level(t, found, "rehearsal", locks.Problem)
}

// Slow: a replica takes seconds to connect.
func TestDoctorReplica(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := master.Replica()
	Level(t, Examine(t, open(t, master.URL())), "replicas", locks.Note)
	Level(t, Examine(t, open(t, master.URL("min-replicas=1"))), "replicas", locks.OK)
	found := Examine(t, open(t, replica.URL("quarantine=0")))
	Level(t, found, "role", locks.Problem)
	if f, ok := found["rehearsal"]; ok {
		t.Errorf("tried all the same: %+v", f)
	}
}

// A server that is not there, or lets nobody in, cannot be examined.
func TestDoctorOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "s3cret")
	if found, err := open(t, "redis://:wrong@"+server.Addr()).Examine(background, time.Minute); err == nil || strings.Contains(err.Error(), "wrong@") {
		t.Errorf("%v, %v", found, err)
	}
}

// Behind Sentinel it is the master that is looked at; in a Cluster each.
// Slow: sentinels and a cluster take seconds to become complete.
func TestDoctorMany(t *testing.T) {
	t.Parallel()
	sentinels := redistest.StartSentinel(t)
	found := Examine(t, open(t, sentinels.URL()))
	Level(t, found, "replicas", locks.Note)
	Level(t, found, "rehearsal", locks.OK)
	c := redistest.StartCluster(t)
	found = Examine(t, open(t, c.URL("quarantine=0")))
	for _, subject := range []string{"cluster", "maxmemory-policy", "rehearsal", "wake-up"} {
		Level(t, found, subject, locks.OK)
	}
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
		if keys := n.Do("KEYS", "*").([]any); len(keys) != 0 {
			t.Errorf("left behind: %v", keys)
		}
	}
}

// A server that is far away: renewals take longer than an attempt may.
// Slow: every answer is delayed, and doctor asks for many.
func TestDoctorSlow(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t))
	proxy.Judge(func(string) redistest.Verdict {
		time.Sleep(120 * time.Millisecond)
		return redistest.Pass
	})
	rehearsal := func(ttl time.Duration) locks.Finding {
		found, err := open(t, proxy.URL()).Examine(background, ttl)
		testkit.Must(t, err)
		for _, f := range found {
			if f.Subject == "rehearsal" {
				return f
			}
		}
		return locks.Finding{}
	}
	f := rehearsal(time.Second)
	if f.Level != locks.Problem || !strings.Contains(f.Fix+f.What, "--ttl of at least") && !strings.Contains(f.What, "timeout") {
		t.Errorf("%+v", f)
	}
	if f := rehearsal(4 * time.Second); f.Level == locks.OK {
		t.Errorf("%+v", f)
	}
}
