//go:build integration

package redis_test

import (
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
)

func TestConformance(t *testing.T) {
	locktest.Run(t, locktest.Engine{
		Fresh: func(t *testing.T) string { return redistest.StoreURL(t) },
		Open:  func(url string) (locks.Store, error) { return redis.Open(url) },
		TTL:   2 * time.Second,
	})
}
