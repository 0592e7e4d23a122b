//go:build integration

package etcd_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
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

// Large values that golock has not written, more than an answer may have: clean removes them, and a
// lease that has ended is known to be lost.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	url := etcdtest.StoreURL(t)
	s, server := open(t, url), etcdtest.Shared(t)
	holder := AcquireAtOnce(t, s, "n")
	ref := holder.Grant().Ref
	lock := url[strings.LastIndex(url, "/")+1:] + "/" + ref.Key.String() + "/"
	server.Control("lease", "revoke", leaseOf(ref))
	if err := holder.Release(background); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Release = %v, want ErrLost", err)
	}
	const count = 17 // of 1 MiB
	for i := range count {
		put := exec.Command("etcdctl", "--endpoints", server.Addr(), "put", fmt.Sprintf("%sh/%d", lock, i))
		put.Stdin = strings.NewReader(strings.Repeat("x", 1<<20))
		testkit.Must(t, put.Run())
	}
	ExpectError(t, ExpectJoinError(t, s, "n"), "golock clean removes them")
	ExpectSwept(t, s, 0, count)
	Release(t, AcquireAtOnce(t, s, "n"))
}

// leaseOf is the lease of an entry's owner as etcdctl has it.
func leaseOf(ref locks.Ref) string {
	number, _ := strconv.ParseUint(ref.ID.String()[:16], 16, 64)
	return fmt.Sprintf("%x", number&(1<<62-1))
}

// holdLeaseOf is the lease of an entry's hold as etcdctl has it.
func holdLeaseOf(ref locks.Ref) string {
	number, _ := strconv.ParseUint(ref.ID.String()[16:], 16, 64)
	return fmt.Sprintf("%x", number|1<<62)
}
