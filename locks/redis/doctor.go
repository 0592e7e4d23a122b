package redis

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
)

// Examine implements locks.Store.
func (s *Store) Examine(ctx context.Context, ttl time.Duration) ([]locks.Finding, error) {
	if _, err := s.names(ctx, ""); err != nil {
		return nil, err
	}
	client, _ := s.client() // the client exists, because the server has just answered
	x := &examination{store: s, client: client}
	if !s.target.TLS && s.target.kind != unixSocket {
		const seen = "the password and the names of locks"
		x.Append(network.Transport(s.target.client.Addrs, seen, "rediss:// in the place of redis://")...)
	}
	x.nodes(ctx)
	if !x.readOnly {
		f, _ := locks.Rehearse(ctx, s, ttl, s.target.Quarantine)
		x.Append(f)
	}
	x.wakeUp(ctx)
	return x.Findings, nil
}

// examination collects findings.
type examination struct {
	locks.Findings
	store    *Store
	client   goredis.UniversalClient
	readOnly bool // the server takes no writes, so that no lock can be tried
}

// nodes examines the server, or each master of a cluster.
func (x *examination) nodes(ctx context.Context) {
	cl, ok := x.client.(*goredis.ClusterClient)
	if !ok {
		x.node(ctx, x.client)
		return
	}
	x.OK("cluster", "each name lives on one master")
	var mu sync.Mutex
	err := cl.ForEachMaster(ctx, func(ctx context.Context, c *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		x.node(ctx, c)
		return nil
	})
	if err != nil {
		x.Add(locks.Problem, "cluster", "its masters cannot be listed: "+err.Error(),
			"names that live there cannot be used", "")
	}
}

func (x *examination) node(ctx context.Context, c goredis.UniversalClient) {
	text, err := c.Info(ctx).Result()
	if err != nil {
		x.noInfo(err)
		return
	}
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		info[key] = value
	}
	x.version(info)
	if role := info["role"]; role != "master" {
		x.readOnly = true
		x.Add(locks.Problem, "role", "the server is a replica ("+locks.Printable(role, 20)+")",
			"nothing can be written there", "name the master, or redis+sentinel:// to be led to it")
	}
	x.memory(info)
	x.persistence(info)
	x.replicas(ctx, c, info)
}

func (x *examination) noInfo(err error) {
	level, why := locks.Problem, "without it there is no quarantine: after a restart or a failover a slot that the "+
		"server forgot may be given away under its holder; nor can golock doctor see the server's settings"
	if x.store.target.Quarantine == 0 { // the user has switched the quarantine off
		level, why = locks.Note, "golock doctor cannot see the server's settings"
	}
	x.Add(level, "INFO", "is refused: "+err.Error(), why, "let the user run it: ACL SETUSER NAME +info")
}

func (x *examination) version(info map[string]string) {
	name, version, mode := "Redis", info["redis_version"], info["redis_mode"]
	if v := info["valkey_version"]; v != "" {
		name, version, mode = "Valkey", v, info["server_mode"]
	}
	what := name + " " + locks.Printable(version, 40) + ", " + locks.Printable(mode, 20)
	var major, minor int
	n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor)
	if name == "Redis" && n == 2 && (major < 6 || major == 6 && minor < 2) {
		x.Add(locks.Problem, "version", what, "golock is made for 6.2 and later, and not tried with older ones",
			"a newer server")
		return
	}
	x.OK("version", what)
}

func (x *examination) memory(info map[string]string) {
	const subject = "maxmemory-policy"
	policy := info["maxmemory_policy"]
	what := "is " + locks.Printable(policy, 40)
	switch unlimited := info["maxmemory"] == "0"; {
	case policy == "": // the server is too old to tell its policy
	case policy == "noeviction" && unlimited:
		x.OK(subject, what+": nothing is thrown away; there is no maxmemory")
	case policy == "noeviction":
		x.OK(subject, what+": nothing is thrown away")
	default:
		if unlimited {
			what += " (and maxmemory 0: nothing is thrown away until somebody sets it)"
		}
		x.Add(locks.Problem, subject, what,
			"a server that needs room throws keys away, those of locks among them (they all have an end of their own, "+
				"so volatile-* hits them too): two may run then",
			"CONFIG SET maxmemory-policy noeviction and the same in redis.conf, or a server of its own for locks")
	}
}

func (x *examination) persistence(info map[string]string) {
	if info["aof_enabled"] == "1" {
		x.OK("persistence", "appendonly is on: a restart finds what was there, but for the last second or less")
	} else {
		x.Add(locks.Note, "persistence",
			"appendonly is off: what came after the last snapshot, if there is one, is lost with the server",
			"a server that comes back without its data forgets who holds what. Runs put their slots back within "+
				"the quarantine ("+x.store.target.Quarantine.String()+"); what only --hold keeps is lost",
			"appendonly yes, if --hold must survive a restart of the server")
	}
	if info["rdb_last_bgsave_status"] == "err" || info["aof_last_write_status"] == "err" {
		x.Add(locks.Note, "disk", "the server could not save its data the last time",
			"unless it is told otherwise it then takes no writes: nobody gets a slot, and leases run out",
			"look into the server's log; give its disk room")
	}
}

// wakeUp examines whether the server can wake waiters.
func (x *examination) wakeUp(ctx context.Context) {
	channel := x.store.channel(locks.Ref{}) // a channel to which no entry listens
	sub := x.client.Subscribe(ctx, channel)
	defer sub.Close()
	_, err := sub.ReceiveTimeout(ctx, lease.LongestAttempt)
	if err == nil {
		err = x.client.Publish(ctx, channel, "0").Err()
	}
	if err == nil {
		x.OK("wake-up", "waiters are woken by PUBLISH")
		return
	}
	x.Add(locks.Note, "wake-up", "the server does not let this user publish and subscribe: "+err.Error(),
		"who waits asks once a second instead of being woken, and who is evicted learns it with its next renewal",
		"ACL SETUSER NAME +publish +subscribe &"+x.store.target.prefix+":*")
}
