package redis

import (
	"context"
	"encoding/json"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
)

// notice is what a listener tells.
type notice struct {
	kind noticeKind
	message
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
	disconnected                   // until it is subscribed again, other connections are tried
	published                      // a message
)

// listen subscribes to the entry's channel until ctx ends, on connections of its own. In a
// Cluster go-redis subscribes at the node that has the keys, whose script counts the
// subscribers of that node only. With a keepAlive the server must answer twice in that
// time; without, only the kernel notices a dead connection.
func (e *entry) listen(ctx context.Context, keepAlive time.Duration, tell func(notice)) {
	var fault error
	defer func() {
		if fault != nil {
			e.mu.Lock()
			e.fault = fault
			e.mu.Unlock()
			tell(notice{kind: disconnected}) // then it asks
		}
	}()
	defer locks.Recover(&fault)
	client, err := e.store.client()
	for told := false; err == nil && ctx.Err() == nil; told = true {
		err := receive(ctx, client.Subscribe(ctx, e.store.channel(e.ref)), keepAlive, func(n notice) {
			told = false
			tell(n)
		})
		if ctx.Err() == nil && lease.IsFinal(e.store.judge(err)) {
			e.store.noPubSub.Store(true)
			return
		}
		if !told { // else each attempt would end the sleep of a waiter
			tell(notice{kind: disconnected})
		}
		lease.Pause(ctx, lease.RetryPause)
	}
}

// receive listens on one connection until it ends.
func receive(ctx context.Context, sub *goredis.PubSub, keepAlive time.Duration, tell func(notice)) error {
	defer sub.Close()
	// Only closing ends a read without a limit.
	stop := context.AfterFunc(ctx, func() { sub.Close() })
	defer stop()
	for pinged := false; ; {
		m, err := sub.ReceiveTimeout(ctx, keepAlive)
		switch {
		case err == nil, pinged && goredis.HasErrorPrefix(err, "NOPERM"): // which is an answer, too
			pinged = false
		case keepAlive == 0, pinged, !lease.IsTimeout(err):
			return err
		default:
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			pinged = true
		}
		switch m := m.(type) {
		case *goredis.Subscription:
			tell(notice{kind: subscribed})
		case *goredis.Message:
			n := notice{kind: published}
			_ = json.Unmarshal([]byte(m.Payload), &n.message) // an unknown message is a reason to ask
			tell(n)
		}
	}
}
