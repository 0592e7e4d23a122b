package redis

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
)

// notice is what a listener tells.
type notice struct {
	kind noticeKind
	message
	err error // broken
}

// message is what the script publishes to an entry.
type message struct {
	Recheck millis // when to ask; 0 is now
	Epoch   string
	Record  *record // it has become a holder
	Evicted bool    // somebody took the entry back
}

type noticeKind int

const (
	subscribed   noticeKind = iota // for the first time or again
	disconnected                   // another connection is tried
	denied                         // the server does not allow it: no wake-up arrives
	published                      // a message
	broken                         // a fault of the listener's own
)

// listen subscribes to an entry's channel, on a connection of its own and on new ones
// if that ends, until ctx does; then the channel is closed. A server in a cluster
// counts only its own subscribers, and go-redis subscribes at the node that has the
// keys. With a keepAlive the server must answer twice in that time; without, only
// the kernel tells of a dead connection.
func (s *Store) listen(ctx context.Context, ref locks.Ref, ttl, keepAlive time.Duration) <-chan notice {
	out := make(chan notice)
	tell := func(n notice) {
		select {
		case out <- n:
		case <-ctx.Done():
		}
	}
	client, err := s.connection.use(ttl)
	go func() {
		defer close(out)
		if err != nil {
			tell(notice{kind: broken, err: err})
			return
		}
		defer func() {
			if v := recover(); v != nil {
				tell(notice{kind: broken, err: &lease.Refusal{Err: locks.NewPanicError(v)}})
			}
		}()
		for ctx.Err() == nil {
			err := receive(ctx, client, s.channel(ref), keepAlive, tell)
			if lease.IsFinal(s.judge(err)) {
				tell(notice{kind: denied})
				return
			}
			tell(notice{kind: disconnected})
			lease.Pause(ctx, lease.RetryPause)
		}
	}()
	return out
}

// receive listens on one connection until it ends.
func receive(ctx context.Context, client goredis.UniversalClient, channel string, keepAlive time.Duration, tell func(notice)) error {
	sub := client.Subscribe(ctx, channel)
	defer sub.Close()
	// Nothing but closing ends a read that waits for ever.
	stop := context.AfterFunc(ctx, func() { sub.Close() })
	defer stop()
	pinged := false
	for {
		m, err := sub.ReceiveTimeout(ctx, keepAlive)
		switch {
		case err != nil && keepAlive > 0 && isTimeout(err) && !pinged:
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			pinged = true
			continue
		case err != nil:
			return err
		}
		pinged = false
		switch m := m.(type) {
		case *goredis.Subscription:
			tell(notice{kind: subscribed})
		case *goredis.Message:
			n := notice{kind: published}
			_ = json.Unmarshal([]byte(m.Payload), &n.message) // what it does not understand is a reason to ask
			tell(n)
		}
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}
