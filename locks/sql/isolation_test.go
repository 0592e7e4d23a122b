//go:build integration

package sql_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/sql"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// defaults are what administrators set for everybody: none of it may decide
// what a step reads and whether it counts.
func defaults(f family) []string {
	if f.name == "postgres" {
		return []string{
			"default_transaction_isolation='read committed'",
			"default_transaction_isolation='repeatable read'",
			"default_transaction_isolation='serializable'",
			"default_transaction_read_only=on",
			"synchronous_commit=off",
			"timezone='Asia/Tokyo'",
			"statement_timeout=500",
			"enable_indexscan=off",
		}
	}
	if sqltest.MySQL() {
		return []string{
			"transaction_isolation='READ-COMMITTED'",
			"transaction_isolation='SERIALIZABLE'",
			"autocommit=0,transaction_isolation='SERIALIZABLE'",
			"transaction_read_only=1",
			"sql_mode='ANSI,PAD_CHAR_TO_FULL_LENGTH'",
			"max_execution_time=500,time_zone='+09:00'",
		}
	}
	return []string{
		"tx_isolation='READ-COMMITTED'",
		"tx_isolation='REPEATABLE-READ'",
		"tx_isolation='SERIALIZABLE'",
		"autocommit=0",
		"autocommit=0,tx_isolation='SERIALIZABLE'",
		"tx_read_only=1",
		"sql_mode='ORACLE,ANSI_QUOTES,SIMULTANEOUS_ASSIGNMENT'",
		"max_statement_time=0.5,time_zone='+09:00'",
	}
}

// Whatever transactions are by default: an exclusive slot is never granted
// twice, no attempt fails, and fences grow.
func TestDefaultsOfTransactions(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		server := f.shared(t)
		if f.name == "mariadb" { // whose setting is for all
			server = f.start(t)
		}
		for _, setting := range defaults(f) {
			t.Run(setting, func(t *testing.T) {
				b := &base{f, server, server.NewDatabase(t)}
				if f.name == "postgres" {
					b.exec(t, "ALTER DATABASE "+b.name+" SET "+setting)
				} else {
					b.exec(t, "SET GLOBAL init_connect=\"SET SESSION "+setting+"\"")
				}
				contend(t, b, 6, rounds(4))
			})
		}
	})
}

// rounds are ten times as many if somebody has the time.
func rounds(n int) int {
	if testkit.Campaign() {
		return 10 * n
	}
	return n
}

// contend has clients take and give back one slot again and again, every other
// one without waiting for it.
func contend(t *testing.T, b *base, clients, rounds int) {
	t.Helper()
	name := fmt.Sprintf("of %d", clients)
	var inside, counter, lastFence, grants atomic.Int64
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range clients {
		s := b.store(t)
		all.Go(func() {
			<-begin
			for range rounds {
				lease, err := enter(t, s, name, i%2 == 1)
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				if lease == nil {
					continue // busy
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("client %d: %d are inside", i, n)
				}
				if f := lease.Grant().Fence; f <= lastFence.Load() {
					t.Errorf("client %d: fence %d after %d", i, f, lastFence.Load())
				} else {
					lastFence.Store(f)
				}
				// Nothing but the slot protects this.
				n := counter.Load()
				runtime.Gosched()
				counter.Store(n + 1)
				grants.Add(1)
				inside.Add(-1)
				if err := GiveBack(lease); err != nil {
					t.Errorf("client %d: Release: %v", i, err)
					return
				}
			}
		})
	}
	started := time.Now()
	close(begin)
	all.Wait()
	if counter.Load() != grants.Load() || grants.Load() < int64((clients+1)/2*rounds) {
		t.Errorf("%d clients: %d grants, counted %d", clients, grants.Load(), counter.Load())
	}
	Becomes(t, b.store(t), name, 0, 0)
	t.Logf("%d clients: %d grants in %d attempts, %.1f ms each", clients, grants.Load(), clients*rounds,
		time.Since(started).Seconds()*1000/float64(clients*rounds))
}

// enter takes the slot; nil if it is busy, for one who does not wait.
func enter(t *testing.T, s *sql.Store, name string, impatient bool) (locks.Lease, error) {
	ctx, cancel := context.WithTimeout(background, testkit.Patience)
	defer cancel()
	r := NewRequest(t, name)
	r.NoWait = impatient
	ticket, err := s.Join(ctx, r)
	if e := (*locks.BusyError)(nil); errors.As(err, &e) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ticket.Wait(ctx)
}
