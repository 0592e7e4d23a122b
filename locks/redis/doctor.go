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
	if _, err := s.names(ctx, allNames); err != nil {
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
		f, _ := locks.TryTestLock(ctx, s, ttl, s.target.Quarantine)
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
			"names that are stored there cannot be used", "")
	}
}

// node examines one server by its answer to INFO.
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
	x.readOnly = x.readOnly || info["role"] != "master"
	x.Judge("role", locks.Row{
		When: info["role"] != "master", Level: locks.Problem,
		What: "the server is a replica (" + locks.Printable(info["role"], 20) + ")",
		Why:  "nothing can be written there",
		Fix:  "name the master, or redis+sentinel:// to be led to it",
	})
	x.memory(info)
	x.persistence(info)
	x.replicas(ctx, c, info)
}

// noInfo adds the finding that the server refuses INFO.
func (x *examination) noInfo(err error) {
	const subject, fix = "INFO", "let the user run it: ACL SETUSER NAME +info"
	what := "is refused: " + err.Error()
	x.Judge(subject,
		locks.Row{
			When: x.store.target.Quarantine == 0, Level: locks.Note, What: what, // the user has switched it off
			Why: "golock doctor cannot see the server's settings", Fix: fix,
		},
		locks.Row{
			When: true, Level: locks.Problem, What: what,
			Why: "without it there is no quarantine: after a restart or a failover a slot that the server forgot may be given " +
				"away under its holder; nor can golock doctor see the server's settings",
			Fix: fix,
		},
	)
}

// version examines whether the server is new enough.
func (x *examination) version(info map[string]string) {
	name, version, mode := "Redis", info["redis_version"], info["redis_mode"]
	if v := info["valkey_version"]; v != "" {
		name, version, mode = "Valkey", v, info["server_mode"]
	}
	what := name + " " + locks.Printable(version, 40) + ", " + locks.Printable(mode, 20)
	var major, minor int
	n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor)
	isOld := major < 6 || major == 6 && minor < 2
	x.Judge("version",
		locks.Row{
			When: name == "Redis" && n == 2 && isOld, Level: locks.Problem, What: what,
			Why: "golock needs Redis 6.2 or later",
			Fix: "a newer server",
		},
		locks.Row{When: true, Level: locks.OK, What: what},
	)
}

// memory examines whether the server may throw keys away. A server that is too old does not tell its
// policy.
func (x *examination) memory(info map[string]string) {
	policy, isUnlimited := info["maxmemory_policy"], info["maxmemory"] == "0"
	isSafe := policy == "noeviction"
	what := "is " + locks.Printable(policy, 40)
	const why = "a server that needs room throws keys away, those of locks among them (they all have an end of their " +
		"own, so volatile-* hits them too): two may run then"
	const fix = "CONFIG SET maxmemory-policy noeviction and the same in redis.conf, or a server of its own for locks"
	x.Judge("maxmemory-policy",
		locks.Row{
			When: isSafe && isUnlimited, Level: locks.OK,
			What: what + ": nothing is thrown away; there is no maxmemory",
		},
		locks.Row{When: isSafe, Level: locks.OK, What: what + ": nothing is thrown away"},
		locks.Row{
			When: policy != "" && isUnlimited, Level: locks.Problem, Why: why, Fix: fix,
			What: what + " (and maxmemory 0: nothing is thrown away until somebody sets it)",
		},
		locks.Row{When: policy != "", Level: locks.Problem, What: what, Why: why, Fix: fix},
	)
}

// persistence examines what the server still has after a restart.
func (x *examination) persistence(info map[string]string) {
	x.Judge("persistence",
		locks.Row{
			When: info["aof_enabled"] == "1", Level: locks.OK,
			What: "appendonly is on: a restart finds what was there, but for the last second or less",
		},
		locks.Row{
			When: true, Level: locks.Note,
			What: "appendonly is off: what came after the last snapshot, if there is one, is lost with the server",
			Why: "a server that comes back without its data forgets who holds what. Runs put their slots back within " +
				"the quarantine (" + x.store.target.Quarantine.String() + "); what only --hold keeps is lost",
			Fix: "appendonly yes, if --hold must survive a restart of the server",
		},
	)
	x.Judge("disk",
		locks.Row{
			When:  info["rdb_last_bgsave_status"] == "err" || info["aof_last_write_status"] == "err",
			Level: locks.Note,
			What:  "the server could not save its data the last time",
			Why:   "by default it accepts no writes then: nobody gets a slot, and leases run out",
			Fix:   "see the server's log; free space on its disk",
		},
	)
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
	x.Judge("wake-up",
		locks.Row{When: err == nil, Level: locks.OK, What: "waiters are woken by PUBLISH"},
		locks.Row{
			When: true, Level: locks.Note,
			What: fmt.Sprintf("the server does not let this user publish and subscribe: %v", err),
			Why:  "waiters ask once a second instead of being woken, and an evicted run learns it with its next renewal",
			Fix:  "ACL SETUSER NAME +publish +subscribe &" + x.store.target.prefix + ":*",
		},
	)
}
