//go:build integration

package etcd_test

import (
	"os"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/etcd"
	"golock/locks/etcd/etcdtest"
	"golock/locks/locktest"
	"golock/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Library(m)) }

func TestConformance(t *testing.T) {
	locktest.Run(t, locktest.Engine{
		Fresh: func(t *testing.T) string { return etcdtest.StoreURL(t) },
		Open:  func(url string) (locks.Store, error) { return etcd.Open(url) },
		TTL:   2 * time.Second, Blind: true, Reserves: true,
	})
}
