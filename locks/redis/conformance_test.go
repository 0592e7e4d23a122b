package redis_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
)

func TestConformance(t *testing.T) {
	var server *redistest.Server
	var once sync.Once
	var stores atomic.Int64
	locktest.Run(t, locktest.Engine{
		Fresh: func(*testing.T) string {
			once.Do(func() { server = redistest.Start(t) })
			return server.SocketURL("quarantine=0", "prefix=store"+strconv.FormatInt(stores.Add(1), 10))
		},
		Open: func(url string) (locks.Store, error) { return redis.Open(url) },
		TTL:  2 * time.Second,
	})
}
