package redis

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
)

// notice is what a listener tells.
type notice struct {
	kind    noticeKind
	recheck time.Duration // message: when to ask; 0 is now

	epoch, raw string // granted
	record     record // granted
	err        error  // broken
}

type noticeKind int

const (
	subscribed   noticeKind = iota // for the first time or again
	disconnected                   // another connection is tried
	denied                         // the server does not allow it: no wake-up arrives
	message                        // ask, now or later
	granted                        // it is a holder now
	evicted                        // somebody took the entry back
	broken                         // a fault of the listener's own
)

// parseMessage makes a notice of what was published: a word of queue.lua, or the ms
// until the waiter is to ask. What it does not understand is a reason to ask.
func parseMessage(payload string) notice {
	word, rest, _ := strings.Cut(payload, " ")
	switch word {
	case "evicted":
		return notice{kind: evicted}
	case "granted":
		epoch, text, _ := strings.Cut(rest, " ")
		if r, err := parseRecord(text); err == nil {
			return notice{kind: granted, epoch: epoch, raw: text, record: r}
		}
	}
	ms, err := strconv.Atoi(word)
	if err != nil || ms < 0 {
		ms = 0
	}
	return notice{kind: message, recheck: time.Duration(ms) * time.Millisecond}
}

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
		defer s.connection.done()
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
			tell(parseMessage(m.Payload))
		}
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}
