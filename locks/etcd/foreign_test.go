//go:build integration

package etcd_test

import (
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/etcd/etcdtest"
	. "golock/locks/locktest"
	"golock/test/testkit"
)

// Keys as golock writes them, but on no lease: nobody gets a slot, and break and clean remove them.
func TestKeysOnNoLease(t *testing.T) {
	t.Parallel()
	url := etcdtest.StoreURL(t)
	s, server := open(t, url), etcdtest.Shared(t)
	holder := AcquireAtOnce(t, s, "n")
	ref := holder.Grant().Ref
	lock := url[strings.LastIndex(url, "/")+1:] + "/" + ref.Key.String() + "/"
	record := server.Control("get", "--print-value-only", lock+"h/"+ref.ID.String())
	Release(t, holder)
	for _, key := range []string{"h/ID", "h/ID.hold", "w/7fffffff/ID/1.1.-.0"} {
		key = lock + strings.Replace(key, "ID", ref.ID.String(), 1)
		server.Control("put", key, record)
		ExpectError(t, ExpectFinalError(t, s, "n"), ref.String(), "a key on lease 0")
		testkit.Must(t, s.Evict(background, []locks.Ref{ref}, "me")[0])
		Release(t, AcquireAtOnce(t, s, "n"))
		server.Control("put", key, record)
		ExpectSwept(t, s, 0, 1)
	}
	Release(t, AcquireAtOnce(t, s, "n"))
}
