package etcd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golock/locks"
	"golock/locks/lease"
)

// host is one host of the URL, and the status of the member there.
type host struct {
	address string
	status  memberStatus
	err     error // why the member does not answer; nil if it has answered
}

// hosts asks each host of the URL.
func (x *examination) hosts(ctx context.Context) []host {
	all := make([]host, len(x.store.client.target.hosts))
	var group sync.WaitGroup
	for i, address := range x.store.client.target.hosts {
		group.Go(func() {
			one := &all[i]
			one.address = address
			defer locks.Recover(&one.err)
			one.status, one.err = x.store.statusOf(ctx, address)
		})
	}
	group.Wait()
	return all
}

// statusOf asks one member.
func (s *Store) statusOf(ctx context.Context, address string) (st memberStatus, err error) {
	target := *s.client.target
	target.hosts = []string{address}
	c := newClient(&target)
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	l, err := c.current(ctx, nil)
	if err == nil {
		err = l.call(ctx, "Maintenance/Status", nil, st.read)
	}
	return st, err
}

// versions returns the numbers of a version and their count, which is less than two if the text is not a
// version.
func versions(text string) (number [3]int, count int) {
	count, _ = fmt.Sscanf(text, "%d.%d.%d", &number[0], &number[1], &number[2])
	return number, count
}

// oldest returns the oldest version of the members that answer. Any of them may be the leader.
func oldest(asked *memberStatus, all []host) string {
	text := asked.version
	for i := range all {
		number, count := versions(all[i].status.version)
		lowest, _ := versions(text)
		isKnown := all[i].err == nil && count > 1
		if isKnown && slices.Compare(number[:], lowest[:]) < 0 {
			text = all[i].status.version
		}
	}
	return text
}

// reachable judges the answers of the hosts of the URL.
func (x *examination) reachable(st *memberStatus, m *membership, all []host) {
	var silent []host
	for i := range all {
		one := &all[i]
		switch {
		case one.err != nil:
			silent = append(silent, *one)
		case one.status.cluster != st.cluster:
			x.Add(locks.Problem, "hosts", one.address+" belongs to another cluster than the others",
				"two may run: each cluster has locks of its own", "name the members of one cluster")
		case one.status.isLearner:
			x.Add(locks.Note, "hosts", one.address+" is a learner", "it refuses what golock asks", "leave it out of the URL")
		}
	}
	why := "golock asks another one; with one more away there may be no majority"
	if m.voters-len(silent) > m.voters/2+1 {
		why = "golock asks another one"
	}
	for _, one := range silent {
		x.Add(locks.Note, "hosts", fmt.Sprintf("%s does not answer: %v", one.address, one.err), why, "start it, or leave it out of the URL")
	}
	if len(silent) == 0 {
		x.OK("hosts", "all that the URL names answer")
	}
}

// revisions compares the data of the members. A member that is still behind after a moment does not follow the leader.
func (x *examination) revisions(ctx context.Context, st *memberStatus, all []host) {
	const moment = 200 * time.Millisecond
	var answering, slow []host
	latest := st.revision
	for _, one := range all {
		if one.err == nil && one.status.cluster == st.cluster {
			answering = append(answering, one)
			latest = max(latest, one.status.revision)
		}
	}
	for _, one := range answering {
		if one.status.revision < latest {
			slow = append(slow, one)
		}
	}
	if len(slow) > 0 {
		lease.Pause(ctx, moment)
	}
	isBehind := false
	for _, one := range slow {
		now, err := x.store.statusOf(ctx, one.address)
		if err != nil || now.revision >= latest {
			continue
		}
		isBehind = true
		x.Add(locks.Note, "data", fmt.Sprintf("%s is at revision %d, others at %d", one.address, now.revision, latest),
			"waiters there hear late of their turn. A member with old data may let two run",
			"look at its disk and its log; after a restore from a backup remove the member, and add it anew")
	}
	if !isBehind {
		x.OK("data", fmt.Sprintf("all members that answer are at revision %d or later. A cluster restored from a backup forgets "+
			"slots: start it only when the longest --ttl is over since the old one was stopped", latest))
	}
}

// commits measures how long the cluster takes to commit a change: the slower its disks, the sooner it
// changes its leader.
func (x *examination) commits(ctx context.Context, ttl time.Duration) {
	const count = 5
	var longest time.Duration
	for range count {
		ref, err := locks.NewRef("golock doctor")
		if err != nil {
			return
		}
		id, _ := leasesOf(ref.ID)
		took, err := retryCall(ctx, x.store, func(ctx context.Context, l *link) (time.Duration, error) {
			begin := x.store.clock()
			_, err := l.grant(ctx, id, max(ttl.Truncate(time.Second), time.Second))
			end := x.store.clock()
			if err == nil {
				l.revokeSoon(id)
			}
			return end.Sub(begin), err
		})
		if err != nil {
			return // leastTTL reports that
		}
		longest = max(longest, took)
	}
	what := fmt.Sprintf("takes %v at most, of %d", longest.Round(10*time.Microsecond), count)
	if limit := min(ttl/20, 500*time.Millisecond); longest > cmp.Or(limit, time.Millisecond) {
		x.Add(locks.Note, "commit", what+fmt.Sprintf("; with a TTL of %v more than %v is slow", ttl, limit),
			"slots are taken late, and a leader that is slower still loses its office (etcd wants a WAL fsync in 10 ms)",
			"faster disks for etcd, or a longer --ttl")
		return
	}
	x.OK("commit", what)
}
