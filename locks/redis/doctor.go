package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
)

// Examine implements locks.Store.
func (s *Store) Examine(ctx context.Context, ttl time.Duration) ([]locks.Finding, error) {
	client, err := s.connection.use(ttl)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.URL(), err)
	}
	defer s.connection.done()
	x := &examination{store: s, client: client}
	if x.found, err = network.Reach(ctx, s.URL(), x.ping); err != nil {
		return nil, err
	}
	if !s.target.TLS && s.target.kind != unixSocket {
		x.add(network.Transport(s.target.hosts, "the password and the names of locks", "rediss:// in the place of redis://")...)
	}
	x.nodes(ctx)
	if !x.readOnly {
		x.rehearse(ctx, ttl)
	}
	x.wakeUp(ctx)
	return x.found, nil
}

// examination collects findings.
type examination struct {
	store  *Store
	client goredis.UniversalClient
	found  []locks.Finding

	readOnly bool // there is nothing to rehearse
}

func (x *examination) add(found ...locks.Finding) {
	for _, f := range found {
		if !slices.Contains(x.found, f) { // several nodes may be alike
			x.found = append(x.found, f)
		}
	}
}

// brief bounds one question.
func brief(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, lease.LongestAttempt)
}

// ping finds out whether there is anybody who lets us in.
func (x *examination) ping(ctx context.Context) error {
	err := x.client.Ping(ctx).Err()
	if goredis.HasErrorPrefix(err, "NOPERM") { // somebody is there
		return nil
	}
	return x.store.judge(err)
}

// nodes looks at the server, or at each master of a cluster.
func (x *examination) nodes(ctx context.Context) {
	cl, ok := x.client.(*goredis.ClusterClient)
	if !ok {
		x.node(ctx, x.client)
		return
	}
	x.add(locks.Finding{
		Level: locks.OK, Subject: "cluster", What: "each name lives on one master",
		Why: "a replica that takes over may lack the last grants; see replicas",
	})
	var masters []*goredis.Client
	bound, cancel := brief(ctx)
	defer cancel()
	lock := make(chan struct{}, 1)
	err := cl.ForEachMaster(bound, func(_ context.Context, c *goredis.Client) error {
		lock <- struct{}{}
		masters = append(masters, c)
		<-lock
		return nil
	})
	if err != nil {
		x.add(locks.Finding{Level: locks.Problem, Subject: "cluster", What: "its masters cannot be listed: " + err.Error(), Why: "names that live there cannot be used"})
	}
	for _, m := range masters {
		x.node(ctx, m)
	}
}

func (x *examination) node(ctx context.Context, c goredis.UniversalClient) {
	x.clock(ctx, c)
	bound, cancel := brief(ctx)
	defer cancel()
	text, err := c.Info(bound).Result()
	if err != nil {
		x.noInfo(err)
		return
	}
	info := parseInfo(text)
	x.version(info)
	x.role(info)
	x.memory(info)
	x.persistence(ctx, c, info)
	x.replicas(info)
}

func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[key] = value
		}
	}
	return info
}

func (x *examination) noInfo(err error) {
	f := locks.Finding{
		Level: locks.Problem, Subject: "INFO", What: "is refused: " + err.Error(),
		Why: "without it there is no quarantine: after a restart or a failover a slot that the server forgot may be given away under its holder; nor can golock doctor see the server's settings",
		Fix: "let the user run it: ACL SETUSER NAME +info",
	}
	if x.store.target.Quarantine == 0 { // which the user does not want
		f.Level, f.Why = locks.Note, "golock doctor cannot see the server's settings"
	}
	x.add(f)
}

func (x *examination) clock(ctx context.Context, c goredis.UniversalClient) {
	bound, cancel := brief(ctx)
	defer cancel()
	before := time.Now()
	server, err := c.Time(bound).Result()
	if err == nil {
		x.add(locks.Skew(server, before, time.Now()))
	}
}

func (x *examination) version(info map[string]string) {
	name, version := "Redis", info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		name, version = "Valkey", v
	}
	f := locks.Finding{Level: locks.OK, Subject: "version", What: name + " " + locks.Printable(version, 40) + ", " + locks.Printable(info["redis_mode"], 20)}
	if name == "Redis" && older(version, 6, 2) {
		f.Level, f.Why, f.Fix = locks.Problem, "golock is made for 6.2 and later, and not tried with older ones", "a newer server"
	}
	x.add(f)
}

// older compares a version.
func older(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(parts[1])
	return errA == nil && errB == nil && (a < major || a == major && b < minor)
}

func (x *examination) role(info map[string]string) {
	if role := info["role"]; role != "master" {
		x.readOnly = true
		x.add(locks.Finding{
			Level: locks.Problem, Subject: "role", What: "the server is a replica (" + locks.Printable(role, 20) + ")", Why: "nothing can be written there",
			Fix: "name the master, or redis+sentinel:// to be led to it",
		})
	}
}

func (x *examination) memory(info map[string]string) {
	policy := info["maxmemory_policy"]
	f := locks.Finding{Level: locks.OK, Subject: "maxmemory-policy", What: "is " + locks.Printable(policy, 40) + ": nothing is thrown away"}
	switch {
	case policy == "": // too old to tell
		return
	case policy != "noeviction":
		f.Level, f.What = locks.Problem, "is "+locks.Printable(policy, 40)
		f.Why = "a server that needs room throws keys away, those of locks among them (they all have an end of their own, so volatile-* hits them too): two may run then"
		if info["maxmemory"] == "0" {
			f.What += " (and maxmemory 0: nothing is thrown away until somebody sets it)"
		}
		f.Fix = "CONFIG SET maxmemory-policy noeviction and the same in redis.conf, or a server of its own for locks"
	case info["maxmemory"] == "0":
		f.What += "; there is no maxmemory"
	}
	x.add(f)
}

func (x *examination) persistence(ctx context.Context, c goredis.UniversalClient, info map[string]string) {
	bound, cancel := brief(ctx)
	defer cancel()
	save, known := "", false
	if settings, err := c.ConfigGet(bound, "save").Result(); err == nil {
		save, known = settings["save"]
	}
	why := "a server that comes back without its data forgets who holds what. Runs put their slots back within the quarantine (" + x.store.target.Quarantine.String() +
		"); what only --hold keeps is lost"
	f := locks.Finding{Level: locks.OK, Subject: "persistence"}
	switch {
	case info["aof_enabled"] == "1":
		f.What = "appendonly is on: a restart finds what was there, but for the last second or less"
	case known && save == "":
		f.Level, f.What, f.Why = locks.Note, "none: appendonly no, save \"\"", why
		f.Fix = "appendonly yes, if --hold must survive a restart of the server"
	case known:
		f.Level, f.What, f.Why = locks.Note, "snapshots only (save "+locks.Printable(save, 60)+"): what came after the last one is lost with the server", why
		f.Fix = "appendonly yes, if --hold must survive a crash of the server"
	default:
		f.Level, f.What, f.Why = locks.Note, "appendonly is off; whether there are snapshots the server does not tell this user", why
		f.Fix = "appendonly yes, if --hold must survive a restart of the server"
	}
	x.add(f)
	if info["rdb_last_bgsave_status"] == "err" || info["aof_last_write_status"] == "err" {
		x.add(locks.Finding{
			Level: locks.Note, Subject: "disk", What: "the server could not save its data the last time", Why: "unless it is told otherwise it then takes no writes: nobody gets a slot, and leases run out",
			Fix: "look into the server's log; give its disk room",
		})
	}
}

func (x *examination) replicas(info map[string]string) {
	count, _ := strconv.Atoi(info["connected_slaves"])
	want := x.store.target.replicas
	f := locks.Finding{Level: locks.OK, Subject: "replicas"}
	switch {
	case want > count:
		f.Level, f.What = locks.Problem, fmt.Sprintf("%d connected, and ?min-replicas=%d in the URL", count, want)
		f.Why, f.Fix = "no slot is given before so many have it", "connect the replicas, or a smaller ?min-replicas="
	case want > 0:
		f.What = fmt.Sprintf("%d connected; a grant counts when %d have it", count, want)
	case count > 0:
		f.Level, f.What = locks.Note, fmt.Sprintf("%d connected, and grants do not wait for them", count)
		f.Why = "one that takes over may lack the last grants: their holders put them back within the quarantine, but a run that the new master let in first stays"
		f.Fix = "?min-replicas=1 in the URL: a grant counts when that many replicas have it"
	default:
		f.What = "none: nothing takes over when the server is gone, and nothing can be forgotten by that"
	}
	x.add(f)
}

// rehearse does what a run does, and removes what that leaves for ten minutes.
func (x *examination) rehearse(ctx context.Context, ttl time.Duration) {
	s := x.store
	r := network.Rehearse(ctx, s, s.target.Quarantine)
	x.add(r.Finding(ttl))
	for _, w := range s.Warnings() {
		if !strings.Contains(w, "INFO") && !strings.Contains(w, "subscribe") { // found elsewhere
			x.add(locks.Finding{Level: locks.Note, Subject: "warning", What: w})
		}
	}
	clean, cancel := brief(context.WithoutCancel(ctx))
	defer cancel()
	keys := s.call(list, r.Ref.Key).keys
	for _, key := range keys[:6] {
		_ = x.client.Del(clean, key).Err() // one by one: a user may not be allowed all; they end by themselves
	}
	_ = x.client.ZRem(clean, s.index(), r.Name).Err()
}

// wakeUp finds out whether waiters can be woken.
func (x *examination) wakeUp(ctx context.Context) {
	ref, err := locks.NewRef("golock doctor")
	if err != nil {
		return
	}
	bound, cancel := brief(ctx)
	defer cancel()
	channel := x.store.channel(ref)
	sub := x.client.Subscribe(bound, channel)
	defer sub.Close()
	if _, err = sub.ReceiveTimeout(bound, lease.LongestAttempt); err == nil {
		err = x.client.Publish(bound, channel, "0").Err()
	}
	if err == nil {
		x.add(locks.Finding{Level: locks.OK, Subject: "wake-up", What: "waiters are woken by PUBLISH"})
		return
	}
	x.add(locks.Finding{
		Level: locks.Note, Subject: "wake-up", What: "the server does not let this user publish and subscribe: " + err.Error(),
		Why: "who waits asks once a second instead of being woken, and who is evicted learns it with its next renewal", Fix: "ACL SETUSER NAME +publish +subscribe &" + x.store.target.prefix + ":*",
	})
}
