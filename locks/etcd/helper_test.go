//go:build integration

package etcd_test

import (
	"context"
	"testing"

	"golock/locks/etcd"
	"golock/locks/etcd/etcdtest"
	"golock/test/testkit"
)

var background = context.Background()

func open(t testing.TB, url string) *etcd.Store {
	t.Helper()
	s, err := etcd.Open(url)
	testkit.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// startProxy starts a server, with a store on it and another one behind a proxy.
func startProxy(t *testing.T) (_ *etcdtest.Server, direct *etcd.Store, _ *etcdtest.Proxy, behind *etcd.Store) {
	t.Helper()
	server := etcdtest.Start(t)
	proxy := etcdtest.NewProxy(t, server)
	return server, open(t, server.URL()), proxy, open(t, proxy.URL())
}
