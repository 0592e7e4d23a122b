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
)

// notice is what a listener hears.
type notice struct {
	kind noticeKind
	look time.Duration // message: when to look; 0 is now

	epoch, raw string // given
	record     record // given
	err        error  // broken
}

type noticeKind int

const (
	up      noticeKind = iota // subscribed, for the first time or again
	down                      // the connection has gone; another is tried
	deaf                      // the server does not allow it: nothing will be heard
	message                   // look at the state, now or later
	given                     // it is a holder now
	evicted                   // somebody took the entry back
	broken                    // a fault of the listener's own
)

// What is published to an entry beside numbers.
const (
	wordEvicted = "evicted" // to a holder whose slot was taken back
	wordGranted = "granted" // to a waiter, followed by epoch and record
)

// understand makes a notice of what was published. What it does not understand is
// a reason to look.
func understand(payload string) notice {
	word, rest, _ := strings.Cut(payload, " ")
	switch word {
	case wordEvicted:
		return notice{kind: evicted}
	case wordGranted:
		epoch, text, _ := strings.Cut(rest, " ")
		if r, err := parseRecord(text); err == nil {
			return notice{kind: given, epoch: epoch, raw: text, record: r}
		}
	}
	ms, err := strconv.Atoi(word)
	if err != nil || ms < 0 {
		ms = 0
	}
	return notice{kind: message, look: time.Duration(ms) * time.Millisecond}
}

// listen subscribes to an entry's channel, on a connection of its own and on
// new ones if that ends, until ctx does; then the channel is closed. A server
// in a cluster counts only its own subscribers, and go-redis subscribes at the
// node that has the keys. With a keepAlive the server must answer twice in that
// time; without, only the kernel tells of a dead connection.
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
				tell(notice{kind: broken, err: locks.NewPanicError(v)})
			}
		}()
		for ctx.Err() == nil {
			err := hear(ctx, client, s.channel(ref), keepAlive, tell)
			if err = s.judge(err); isFinal(err) {
				tell(notice{kind: deaf, err: err})
				return
			}
			tell(notice{kind: down, err: err})
			pause(ctx, retryPause)
		}
	}()
	return out
}

// hear listens on one connection until it ends.
func hear(ctx context.Context, client goredis.UniversalClient, channel string, keepAlive time.Duration, tell func(notice)) error {
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
			tell(notice{kind: up})
		case *goredis.Message:
			tell(understand(m.Payload))
		}
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}
