package etcd_test

import (
	"strings"
	"testing"

	"golock/locks/etcd"
	"golock/locks/lease"
)

// Each error of etcd says what to do. An error that may pass, and one that golock does not know, ends no waiting.
func TestErrors(t *testing.T) {
	s, err := etcd.Open("etcd://anna@h1,h2/locks")
	if err != nil {
		t.Fatal(err)
	}
	const (
		passes       = "passes"
		forNewcomers = "ends newcomers"
		forGood      = "ends all"
	)
	for _, one := range []struct {
		code              int // of gRPC
		text, kind, hints string
	}{
		{14, "etcdserver: no leader", passes, "more than half of the members"},
		{14, "etcdserver: request timed out, possibly due to previous leader failure", passes, ""},
		{14, "etcdserver: leader changed", passes, ""},
		{9, "etcdserver: not leader", passes, ""},
		{9, "etcdserver: rpc not supported for learner", passes, "leave the learner out"},
		{2, "raft proposal dropped", passes, ""},
		{4, "context deadline exceeded", passes, ""},
		{8, "etcdserver: too many requests", passes, "more than its disks can write"},
		{11, "etcdserver: mvcc: required revision has been compacted", passes, "--auto-compaction-retention"},
		{5, "etcdserver: requested lease not found", passes, "a longer --ttl"},
		{16, "etcdserver: invalid auth token", passes, ""},
		{3, "etcdserver: revision of auth store is old", passes, ""},
		{8, "etcdserver: mvcc: database space exceeded", forNewcomers, "etcdctl compact, defrag and alarm disarm"},
		{15, "etcdserver: corrupt cluster", forNewcomers, "etcdctl alarm list"},
		{7, "etcdserver: permission denied", forNewcomers, "role grant-permission ROLE readwrite --prefix=true locks/"},
		{3, "etcdserver: authentication failed, invalid user ID or password", forGood, "USER:PASSWORD@HOST"},
		{3, "etcdserver: user name is empty", passes, ""}, // authentication was enabled after the login
		{3, "etcdserver: request is too large", forGood, "--max-request-bytes"},
		{3, "etcdserver: too many operations in txn request", forGood, "--max-txn-ops"},
		{11, "etcdserver: too large lease TTL", forGood, "a shorter --ttl"},
		{12, "unknown method Txn", forGood, "3.4 and later"},
	} {
		err := s.RefusalOf(one.code, one.text)
		kind := forGood
		switch {
		case lease.IsPassing(err):
			kind = passes
		case lease.IsTemporary(err):
			kind = forNewcomers
		}
		if kind != one.kind || !strings.Contains(err.Error(), one.text) || !strings.Contains(err.Error(), one.hints) {
			t.Errorf("%s: %s: %v; want that it %s, with %q", one.text, kind, err, one.kind, one.hints)
		}
	}
}
