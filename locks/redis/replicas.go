package redis

import (
	"context"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks/lease"
	"golock/locks/queue"
)

// runReplicated runs the script on the master of its keys. Then it waits until enough replicas have
// the lease that the script has granted or prolonged. A master that a partition has cut off from
// its replicas would grant and prolong leases of which the next master never hears.
//
// If too few replicas answer in time, the attempt has failed, whatever the master says. The lease
// then counts from the last attempt that did not fail.
func (s *Store) runReplicated(ctx context.Context, client goredis.UniversalClient, c call) (reply, error) {
	nodes, isCluster := client.(*goredis.ClusterClient)
	if !isCluster {
		return s.runAndWait(ctx, client.(*goredis.Client), c)
	}
	var r reply
	master, err := nodes.MasterForKey(ctx, s.keys(c.key)[0])
	if err == nil {
		r, err = s.runAndWait(ctx, master, c)
	}
	if err != nil { // the next attempt goes to another master, if there is one by then
		nodes.ReloadState(ctx)
	}
	return r, err
}

// runAndWait runs the script and WAIT on one connection, because WAIT covers only what its own
// connection has written. The script writes something whenever it prolongs a lease.
func (s *Store) runAndWait(ctx context.Context, master *goredis.Client, c call) (reply, error) {
	conn := master.Conn()
	defer conn.Close()
	r, err := s.run(ctx, conn, c)
	if err != nil || r.Verdict != queue.Granted && r.Verdict != queue.Held {
		return r, err
	}
	end, _ := ctx.Deadline() // WAIT may take only part of the attempt, so that its answer is back in time
	limit := max(time.Until(end)*3/4, 10*time.Millisecond)
	n, err := conn.Wait(ctx, s.target.replicas, limit).Result()
	switch {
	case err != nil:
		return reply{}, err
	case n < int64(s.target.replicas):
		return reply{}, &lease.Refusal{
			Err: fmt.Errorf("only %d of %d replicas have the lease", n, s.target.replicas), Kind: lease.Passing,
			Hint: "connect the replicas, or use a smaller ?min-replicas=",
		}
	}
	return r, nil
}
