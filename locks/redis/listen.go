package redis

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
)

// message is what the script publishes to an entry. An empty message makes the entry ask: it was
// evicted, it has its turn, or its connection has come or gone.
type message struct {
	Recheck millis // the time until the entry should ask; 0 if it should ask now
	Epoch   string
	Record  json.RawMessage // set if the entry has become a holder
}

// tell keeps a message for the entry. It drops the message if the one that it keeps makes the entry ask sooner.
func (e *entry) tell(m message, subscribed bool) {
	e.mu.Lock()
	if e.message == nil || m.Recheck <= e.message.Recheck {
		e.message = &m
	}
	e.subscribed = subscribed
	e.mu.Unlock()
	select {
	case e.events <- struct{}{}:
	default:
	}
}

// listen subscribes to the entry's channel after a delay, until the entry is closed. It has its own
// connection, which the library makes again after an error. In a Cluster the connection leads to the node
// that has the keys, because the script counts only the subscribers of that node.
func (e *entry) listen(delay time.Duration) {
	var fault error
	defer func() {
		if fault != nil {
			e.mu.Lock()
			e.fault = fault
			e.mu.Unlock()
			e.tell(message{}, false) // the entry asks, and finds the fault
		}
	}()
	defer locks.Recover(&fault)
	lease.Pause(e.life, delay)
	client, err := e.store.client()
	if err != nil {
		return
	}
	sub := client.Subscribe(e.life, e.store.channel(e.ref))
	defer sub.Close()
	context.AfterFunc(e.life, func() { sub.Close() }) // nothing else ends a read
	wasConnected := true
	for {
		received, err := receive(e.life, sub)
		switch {
		case e.life.Err() != nil, errors.Is(err, goredis.ErrClosed): // the entry or the store was closed
			return
		case lease.IsFinal(e.store.asRefusal(err)):
			e.store.noPubSub.Store(true)
			return
		}
		m := messageOf(received)
		// The entry is told once that the connection is lost, not at each failed attempt to connect: every
		// tell wakes the waiter.
		if err == nil || wasConnected {
			e.tell(m, err == nil)
		} else {
			lease.Pause(e.life, lease.RetryPause)
		}
		wasConnected = err == nil
	}
}

// messageOf returns the message of the script. Anything else, and a message that cannot be read, makes the
// entry ask.
func messageOf(received any) message {
	var m message
	text, isMessage := received.(*goredis.Message)
	if !isMessage || decode(text.Payload, &m) != nil {
		return message{}
	}
	return m
}

// receive reads what comes next over a subscription: a message, or that the connection was made again.
func receive(ctx context.Context, sub *goredis.PubSub) (received any, err error) {
	defer network.Recover(&err)
	return sub.Receive(ctx)
}
