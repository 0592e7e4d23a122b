//go:build integration

package campaign_test

import (
	"bufio"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks/locktest/server"
)

// A link is a proxy between one host and a server that makes the faults of a network. It knows bytes,
// not messages, so it fails anywhere in a message. Delayed bytes arrive later, as in a network.

type link struct {
	*server.Proxy
	up, down sync.RWMutex // locked: requests, replies do not get through
	delay    atomic.Int64
}

func newLink(t *testing.T, to string) *link {
	k := &link{}
	k.Proxy = server.NewProxy(t, to, func() server.Wire { return k })
	return k
}

func (k *link) Request(r *bufio.Reader) (server.Message, error) {
	raw, err := k.pass(r, &k.up)
	return server.Message{Raw: raw}, err
}

func (k *link) Reply(r *bufio.Reader) (raw []byte, last bool, err error) {
	raw, err = k.pass(r, &k.down)
	return raw, false, err
}

// pass reads what has come, or the end of the connection, and returns when it may go on.
func (k *link) pass(r *bufio.Reader, open *sync.RWMutex) ([]byte, error) {
	_, err := r.Peek(1)
	raw, _ := r.Peek(r.Buffered())
	_, _ = r.Discard(len(raw))
	time.Sleep(time.Duration(k.delay.Load())) // the delay
	open.RLock()
	defer open.RUnlock()
	return raw, err
}

// fault makes one of the network's, if it is one, and returns when it is over.
func (k *link) fault(f planned) bool {
	switch f.Kind {
	case netCut:
		k.Cut()
		return true
	case netFreeze:
		k.up.Lock()
		defer k.up.Unlock()
		k.down.Lock()
		defer k.down.Unlock()
	case netDeaf:
		k.down.Lock()
		defer k.down.Unlock()
	case netRefuse:
		k.Refuse(true)
		defer k.Refuse(false)
		k.Cut()
	case netDelay:
		k.delay.Store(int64(time.Duration(1+f.Pick%60) * time.Millisecond))
		defer k.delay.Store(0)
	default:
		return false
	}
	time.Sleep(f.For) // the fault
	return true
}
