package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
)

// useMinReplicas is what the user can do.
const useMinReplicas = "?min-replicas=1 or more in the URL: a grant or a renewal then counts when " +
	"that many replicas have it"

// replicas examines whether the leases of a master survive when another server takes over.
func (x *examination) replicas(ctx context.Context, c goredis.UniversalClient, info map[string]string) {
	count, _ := strconv.Atoi(info["connected_slaves"])
	want := x.store.target.replicas
	connected := fmt.Sprintf("%d connected", count)
	confirmed := fmt.Sprintf("%s; a grant or a renewal counts when %d have it", connected, want)
	isAlone := count == 0 && x.store.target.kind != sentinel // a sentinel may know of a replica that is away
	if want == 0 && !isAlone {
		x.unconfirmed(connected+", and no grant or renewal waits for them", x.writeRule(ctx, c))
		return
	}
	x.Judge("replicas",
		locks.Row{
			When: want > count, Level: locks.Problem,
			What: fmt.Sprintf("%s, and ?min-replicas=%d in the URL", connected, want),
			Why:  "no slot is given before that many replicas have it",
			Fix:  "connect the replicas, or use a smaller ?min-replicas=",
		},
		locks.Row{
			When: want > 0 && want < count, Level: locks.Note, What: confirmed,
			Why: "if one of the others takes over it may lack the last grants, and a master that is cut off together with " +
				"so many goes on beside it: two may run then",
			Fix: fmt.Sprintf("?min-replicas=%d in the URL; then no replica may be missing", count),
		},
		locks.Row{When: want > 0, Level: locks.OK, What: confirmed},
		locks.Row{
			When: true, Level: locks.OK,
			What: "none: nothing takes over when the server is gone, and nothing can be forgotten by that",
		},
	)
}

// unconfirmed reports what can happen if leases wait for no replica. It is a problem if another
// server takes over by itself.
func (x *examination) unconfirmed(what string, rule writeRule) {
	level := locks.Note
	if x.store.target.kind.failsOver() {
		level = locks.Problem
	}
	x.Judge("replicas",
		locks.Row{
			When: rule.unknown != nil, Level: level,
			What: fmt.Sprintf("%s; the server's min-replicas-to-write cannot be seen: %v", what, rule.unknown),
			Why:  "without it " + locks.TwoServers,
			Fix: useMinReplicas + "; or see to min-replicas-to-write, and let golock doctor see it: " +
				"ACL SETUSER NAME +config|get",
		},
		locks.Row{
			When: rule.replicas == 0, Level: level,
			What: what + "; the server's min-replicas-to-write is not set",
			Why:  locks.TwoServers,
			Fix:  useMinReplicas + "; min-replicas-to-write in redis.conf bounds the time, without ?min-replicas=, too",
		},
		locks.Row{
			When: true, Level: locks.Note,
			What: fmt.Sprintf("%s; the server takes no writes if fewer than %d have answered for %v",
				what, rule.replicas, rule.lag),
			Why: fmt.Sprintf("after a partition two may run, for up to %v (min-replicas-max-lag) and a third of the TTL",
				rule.lag),
			Fix: useMinReplicas,
		},
	)
}

// failsOver reports whether a replica takes over by itself.
func (k kind) failsOver() bool { return k == sentinel || k == cluster }

// writeRule says when the server refuses writes (min-replicas-to-write).
type writeRule struct {
	replicas int // the number of replicas that must have answered; 0 if the server has no such rule
	lag      time.Duration
	unknown  error // why the rule cannot be read; nil if it can
}

func (x *examination) writeRule(ctx context.Context, c goredis.UniversalClient) writeRule {
	set, err := c.ConfigGet(ctx, "min-replicas-*").Result()
	if err != nil {
		return writeRule{unknown: err}
	}
	replicas, _ := strconv.Atoi(set["min-replicas-to-write"])
	lag, _ := strconv.Atoi(set["min-replicas-max-lag"])
	if lag == 0 { // a lag of 0 switches the rule off
		replicas = 0
	}
	return writeRule{replicas: replicas, lag: time.Duration(lag) * time.Second}
}
