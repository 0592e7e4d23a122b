package etcd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
)

// Examine implements locks.Store.
func (s *Store) Examine(ctx context.Context, ttl time.Duration) ([]locks.Finding, error) {
	x := &examination{store: s}
	var m membership
	st, err := retryCall(ctx, s, func(ctx context.Context, l *link) (st memberStatus, err error) {
		err = l.call(ctx, "Maintenance/Status", nil, st.read)
		if err == nil {
			err = l.call(ctx, "Cluster/MemberList", nil, m.read)
		}
		return st, err
	})
	if err != nil {
		return nil, err
	}
	if !s.client.target.TLS {
		const seen = "the password and the names of locks"
		x.Append(network.Transport(s.client.target.hosts, seen, "etcds:// in the place of etcd://")...)
	}
	all := x.hosts(ctx)
	x.version(oldest(&st, all))
	x.members(&st, &m)
	x.reachable(&st, &m, all)
	x.revisions(ctx, &st, all)
	x.alarms(ctx)
	x.database(&st)
	x.compaction(ctx)
	x.rights(ctx)
	x.leastTTL(ctx, ttl)
	x.commits(ctx, ttl)
	f, _ := locks.TryTestLock(ctx, s, ttl, 0)
	x.Append(f)
	return x.Findings, nil
}

// examination collects findings.
type examination struct {
	locks.Findings
	store *Store
}

// memberStatus is what a member says of itself (StatusResponse).
type memberStatus struct {
	header
	version      string
	size, used   int64 // what the database takes on the disk and what it uses of that, in bytes
	quota        int64 // the largest size of the database, in bytes; 0 before etcd 3.6, which does not report it
	leader, term uint64
	isLearner    bool
}

func (s *memberStatus) read(b []byte) error {
	return read(b, func(field fieldNumber, n int64, b []byte) error {
		switch field {
		case 1:
			return s.header.read(b)
		case 2:
			s.version = string(b)
		case 3:
			s.size = n
		case 4:
			s.leader = uint64(n)
		case 6:
			s.term = uint64(n)
		case 9:
			s.used = n
		case 10:
			s.isLearner = n != 0
		case 12:
			s.quota = n
		}
		return nil
	})
}

// membership counts the members (MemberListResponse).
type membership struct {
	voters    int
	unstarted int // members that were added and have never started
}

func (m *membership) read(b []byte) error {
	*m = membership{}
	return read(b, func(field fieldNumber, _ int64, b []byte) error {
		if field != 2 {
			return nil
		}
		isLearner, hasName := false, false
		err := read(b, func(field fieldNumber, n int64, _ []byte) error {
			hasName = hasName || field == 2
			isLearner = isLearner || field == 5 && n != 0
			return nil
		})
		if !isLearner {
			m.voters++
		}
		if !hasName {
			m.unstarted++
		}
		return err
	})
}

// version judges the version of a member. Before 3.4.31 and 3.5.13 a leader may stand still for so long that
// another one takes over. When it goes on, it revokes leases that were renewed meanwhile
// (https://github.com/etcd-io/etcd/issues/15247).
func (x *examination) version(text string) {
	number, count := versions(text)
	what := "etcd " + locks.Printable(text, 40)
	minor := number[0]*100 + number[1] // 305 for 3.5
	switch {
	case count < 2:
		x.Add(locks.Note, "version", what, "golock does not know such a version", "")
	case minor < 304:
		x.Add(locks.Problem, "version", what, "golock is made for 3.4 and later", "a newer server")
	case minor == 304 && number[2] < 31 || minor == 305 && number[2] < 13:
		x.Add(locks.Note, "version", what,
			"a leader that stood still (a slow disk, a stopped machine) may end leases that are renewed in time, when it goes on: "+
				"two may run for as long as a command takes to stop (etcd issue 15247)",
			"3.4.31, 3.5.13 or later")
	default:
		x.OK("version", what)
	}
}

func (x *examination) members(st *memberStatus, m *membership) {
	what := fmt.Sprintf("%d members with a vote, there is a leader (term %d)", m.voters, st.term)
	hosts := len(x.store.client.target.hosts)
	switch {
	case st.leader == 0:
		x.Add(locks.Problem, "members", "there is no leader", "nobody gets a slot, and no lease is renewed",
			"more than half of the members must be up and reach each other")
	case m.unstarted > 0:
		x.Add(locks.Note, "members", fmt.Sprintf("%s; %d were never started", what, m.unstarted),
			"they count for the majority and do not help to reach it", "start or remove them")
	case m.voters == 1:
		x.Add(locks.Note, "members", "there is one member", "nobody gets a slot, and no lease is renewed, while it is away", "three members")
	case m.voters%2 == 0:
		x.Add(locks.Note, "members", what, "an even number outlives no more failures than one less, and has more of them", "an odd number")
	case hosts == 1:
		x.Add(locks.Note, "members", what+"; the URL names one of them", "golock has no other way when that is away",
			"name all of them: etcd://HOST1,HOST2,HOST3")
	default:
		x.OK("members", what)
	}
}

// alarms reports the alarms that the members have raised (AlarmResponse).
func (x *examination) alarms(ctx context.Context) {
	const noSpace, corrupt = 1, 2
	raised := map[int64]bool{}
	_, err := retryCall(ctx, x.store, func(ctx context.Context, l *link) (struct{}, error) {
		return struct{}{}, l.call(ctx, "Maintenance/Alarm", nil, func(b []byte) error {
			return read(b, func(field fieldNumber, _ int64, b []byte) error {
				if field != 2 {
					return nil
				}
				return read(b, func(field fieldNumber, n int64, _ []byte) error {
					if field == 2 {
						raised[n] = true
					}
					return nil
				})
			})
		})
	})
	switch {
	case err != nil:
		x.Add(locks.Note, "alarms", "cannot be seen: "+err.Error(), "whether the database is full stays open", "")
	case raised[corrupt]:
		x.Add(locks.Problem, "alarms", "CORRUPT is raised", "a member has other data than the rest: two may run", "etcdctl alarm list")
	case raised[noSpace]:
		x.Add(locks.Problem, "alarms", "NOSPACE is raised", "nobody gets a slot; who holds goes on",
			"etcdctl compact, defrag and alarm disarm; a larger --quota-backend-bytes; --auto-compaction-retention")
	default:
		x.OK("alarms", "none is raised")
	}
}

// database judges the size of the database. etcd before 3.6 does not tell the quota.
func (x *examination) database(st *memberStatus) {
	const defaultQuota = 2 << 30
	quota := cmp.Or(st.quota, defaultQuota)
	what := fmt.Sprintf("%d MiB, %d MiB of them in use, of %d MiB", st.size>>20, st.used>>20, quota>>20)
	if st.quota == 0 {
		what += " (the default quota; this etcd does not tell its own)"
	}
	if st.size > quota/4*3 {
		x.Add(locks.Note, "database", what,
			"at its quota it takes no new entries. A waiter writes some kilobytes, which are kept until they are compacted",
			"--auto-compaction-retention, and etcdctl defrag; a larger --quota-backend-bytes")
		return
	}
	x.OK("database", what)
}

// compaction examines whether the cluster compacts its history: then an old revision cannot be read.
func (x *examination) compaction(ctx context.Context) {
	const many = 100_000 // changes
	key := x.store.client.target.prefix + "golock-doctor"
	now, err := retryCall(ctx, x.store, func(ctx context.Context, l *link) (txnAnswer, error) {
		return l.readRanges(ctx, rangeRequest{span: span{from: key}})
	})
	if err != nil || now.revision <= many {
		return
	}
	_, err = retryCall(ctx, x.store, func(ctx context.Context, l *link) (struct{}, error) {
		_, err := l.readRanges(ctx, rangeRequest{span: span{from: key}, revision: now.revision - many})
		if isStatus(err, compacted) {
			return struct{}{}, &lease.Refusal{Err: err}
		}
		return struct{}{}, err
	})
	if isStatus(err, compacted) {
		x.OK("compaction", "old revisions are compacted")
		return
	}
	x.Add(locks.Note, "compaction", fmt.Sprintf("the last %d changes are all kept", many),
		"without compaction the database grows until it is full, and takes no new entries", "--auto-compaction-retention=1h")
}

// rights tests whether the user may list all locks. The test lock does not test that.
func (x *examination) rights(ctx context.Context) {
	prefix := x.store.client.target.prefix
	_, err := retryCall(ctx, x.store, func(ctx context.Context, l *link) (txnAnswer, error) {
		return l.readRanges(ctx, rangeRequest{span: under(prefix), keysOnly: true, limit: 1})
	})
	if err != nil {
		x.Add(locks.Problem, "rights", "the keys with the prefix "+prefix+" cannot be read: "+err.Error(),
			"no slot can be had", "etcdctl role grant-permission ROLE readwrite --prefix=true "+prefix)
		return
	}
	x.OK("rights", "the keys with the prefix "+prefix+" can be read")
}

// leastTTL finds the shortest lease that the cluster grants.
func (x *examination) leastTTL(ctx context.Context, ttl time.Duration) {
	ref, err := locks.NewRef("golock doctor")
	if err != nil {
		return
	}
	id, _ := leasesOf(ref.ID)
	a, err := retryCall(ctx, x.store, func(ctx context.Context, l *link) (a leaseAnswer, err error) {
		a, err = l.grant(ctx, id, time.Second)
		if err == nil {
			_, err = l.revoke(ctx, id)
		}
		return a, err
	})
	least := time.Duration(a.ttl) * time.Second
	switch {
	case err != nil:
		x.Add(locks.Problem, "least TTL", "no lease can be had: "+err.Error(), "no slot can be had", "")
	case ttl < least || ttl%time.Second != 0:
		x.Add(locks.Problem, "least TTL", fmt.Sprintf("is %v, in whole seconds", least),
			fmt.Sprintf("runs with --ttl %v are refused", ttl), fmt.Sprintf("--ttl %v or more", least))
	default:
		x.OK("least TTL", fmt.Sprintf("is %v", least))
	}
}
