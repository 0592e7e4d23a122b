//go:build integration

package crash_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// This file shows what becomes of runs when a server answers, but not as it should. That is an
// outage: short ones disturb nobody; long ones end the job before anybody else gets in, with 79 and
// the server's word for it. (All such answers: TestPassingReplies of locks/redis.)

// state is a server that can be brought into such a state and out of it.
type state struct {
	says       string // the server's word
	url        func(options ...string) string
	begin, end func()
}

// The longer lease outlasts a state in which the shorter one ends.
const (
	middleTTL = 24 * time.Second
	lesserTTL = 6 * time.Second
)

// Slow: a lease must end, and a longer one must come to its renewal.
func TestRedisStates(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T) state{
		"loading":    loading,
		"misconf":    cannotSave,
		"resharding": resharding,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := prepare(t)
			long := newRow(leasing(t, s.url("prefix=long", "quarantine=0s"), middleTTL), 1)
			short := newRow(leasing(t, s.url("prefix=short", "quarantine=0s"), lesserTTL), 1)
			s.begin()
			short.holder.awaitDeath()
			// What it says first may be of the moment in which the server was just being restarted.
			long.holder.Says("warning: the slot cannot be renewed")
			s.end()
			long.holder.Says("the store answers again")
			short.lost()
			if !short.heard("the slot could not be kept", s.says) {
				t.Errorf("79 without the reason %s: %s", s.says, short.report())
			}
			long.served()
		})
	}
}

// loading is a restart with much data.
func loading(t *testing.T) state {
	server := redistest.Start(t, "--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
	server.Do("EVAL", "for i = 1, 20000 do redis.call('SET', 'other' .. i, 'x') end return 1", 0)
	back := make(chan struct{})
	return state{
		says: "LOADING", url: server.URL,
		begin: func() {
			server.Do("SAVE")
			server.Kill()
			go func() {
				defer close(back)
				server.Restart()
			}()
		},
		end: func() {
			testkit.Eventually(t, "the delay is over", func() bool {
				_, err := server.Try("CONFIG", "SET", "key-load-delay", 0)
				return err == nil
			})
			<-back
		},
	}
}

// cannotSave is a server that refuses to write because it cannot save.
func cannotSave(t *testing.T) state {
	dir := filepath.Join(t.TempDir(), "data")
	testkit.Must(t, os.Mkdir(dir, 0o700))
	server := redistest.Start(t, "--dir", dir, "--stop-writes-on-bgsave-error", "yes")
	server.Do("CONFIG", "SET", "save", "3600 1000000")
	return state{
		says: "MISCONF", url: server.URL,
		begin: func() {
			testkit.Must(t, os.Remove(dir))
			server.Do("BGSAVE")
			testkit.Eventually(t, "the server cannot save", func() bool { return server.Info("persistence", "rdb_last_bgsave_status") == "err" })
		},
		end: func() { server.Do("CONFIG", "SET", "stop-writes-on-bgsave-error", "no") },
	}
}

// resharding moves the slot of the name from one node of a cluster to another,
// slowly.
func resharding(t *testing.T) state {
	c := redistest.StartCluster(t)
	slot := c.Nodes[0].Do("CLUSTER", "KEYSLOT", "{"+locks.KeyOf("job").String()+"}").(int64)
	from := c.Nodes[slot*3/16384]
	to := c.Nodes[(slot*3/16384+1)%3]
	id := func(node *redistest.Server) any { return node.Do("CLUSTER", "MYID") }
	return state{
		says: "TRYAGAIN", url: c.URL,
		begin: func() {
			to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", id(from))
			from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", id(to))
			// One key goes now, the rest later.
			keys := from.Do("CLUSTER", "GETKEYSINSLOT", slot, 100).([]any)
			from.Do("MIGRATE", to.Host, to.Port, keys[0], 0, 5000)
		},
		end: func() {
			for _, key := range from.Do("CLUSTER", "GETKEYSINSLOT", slot, 100).([]any) {
				from.Do("MIGRATE", to.Host, to.Port, key, 0, 5000)
			}
			for _, node := range []*redistest.Server{to, from, c.Nodes[(slot*3/16384+2)%3]} {
				node.Do("CLUSTER", "SETSLOT", slot, "NODE", id(to))
			}
		},
	}
}

// The password is changed while a job runs and another waits, and connections are closed: the lease
// cannot be renewed, the job ends in time with 79, the waiter with 69. Both name the cause.
func TestRedisPasswordChanged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, says, user string
		change           []any
	}{
		{"user", "WRONGPASS", "job:s3cret@", []any{"ACL", "SETUSER", "job", "resetpass", ">other"}},
		{"server", "user and password stand before the host", "", []any{"CONFIG", "SET", "requirepass", "other"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			server.Do("ACL", "SETUSER", "job", "on", ">s3cret", "~*", "&*", "+@all")
			server.Do("ACL", "SETUSER", "operator", "on", ">s3cret", "~*", "&*", "+@all")
			url := func(user string) string {
				return strings.Replace(server.URL("quarantine=0s"), "redis://", "redis://"+user, 1)
			}
			r := newRow(leasing(t, url(c.user), lesserTTL), 1)
			operate(t, server, c.change, []any{"CLIENT", "KILL", "TYPE", "normal"}, []any{"CLIENT", "KILL", "TYPE", "pubsub"})
			r.holder.Expects(79)
			r.queue[0].Expects(69)
			if !r.heard("the slot could not be kept", c.says) {
				t.Errorf("79 without the reason: %s", r.report())
			}
			if r.begun(r.queue[0]) || strings.Contains(r.report(), "s3cret") {
				t.Errorf("the waiter has run, or a password is shown: %s", r.report())
			}
			// With the right one the slot is free when the lease has run out.
			next := leasing(t, url("operator:s3cret@"), shortTTL)
			next.start()
			next.finish()
		})
	}
}

// operate sends commands on one connection, as a user whose password stays.
func operate(t *testing.T, server *redistest.Server, commands ...[]any) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	testkit.Must(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testkit.Patience))
	reply := make([]byte, 1024)
	for _, command := range append([][]any{{"AUTH", "operator", "s3cret"}}, commands...) {
		if _, err := fmt.Fprintln(conn, command...); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(reply)
		if err != nil || reply[0] == '-' {
			t.Fatalf("%v: %s %v", command, reply[:n], err)
		}
	}
}

// The master of Sentinel freezes, a replica is promoted, and the old master
// comes back and is told. The jobs go on or end with 79; never two at once.
func TestRedisSentinelFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	var rs []row
	for i := range 3 {
		rs = append(rs, newRow(leasing(t, s.URL(fmt.Sprintf("prefix=w%d", i)), 30*time.Second), 1))
	}
	s.Master.Pause()
	testkit.Eventually(t, "the replica is promoted", func() bool {
		text, err := s.Replica.Try("INFO", "replication") // being promoted it closes connections
		return err == nil && strings.Contains(fmt.Sprint(text), "role:master")
	})
	s.Master.Resume()
	for _, r := range rs {
		r.Eventually("the holder is known to the new master, or has given up", func() bool {
			return !r.holder.Running() || len(r.List("job")) == 2
		})
		r.holder.release()
		if end := r.holder.Wait(); end.Code != 0 && end.Code != 79 {
			t.Errorf("the holder: %v", end)
		}
		r.holder.judged = true
		r.finish()
	}
}
