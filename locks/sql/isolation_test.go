//go:build integration

package sql_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

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
			"max_execution_time=500,time_zone='+09:00',default_storage_engine=MyISAM",
		}
	}
	return []string{
		"tx_isolation='READ-COMMITTED'",
		"tx_isolation='SERIALIZABLE'",
		"autocommit=0",
		"autocommit=0,tx_isolation='SERIALIZABLE'",
		"tx_read_only=1",
		"sql_mode='ORACLE,ANSI_QUOTES,SIMULTANEOUS_ASSIGNMENT'",
		"max_statement_time=0.5,time_zone='+09:00',default_storage_engine=MyISAM",
	}
}

// Whatever transactions are by default: an exclusive slot is never granted
// twice, no attempt fails, and fences grow. MariaDB keeps both tables where there are
// transactions.
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
				contend(t, b, 1)
				if f.name == "postgres" {
					return
				}
				const engines = "SELECT TABLE_NAME,ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE()"
				for _, r := range b.exec(t, engines) {
					if r[1] != "InnoDB" {
						t.Errorf("%s is kept in %s", r[0], r[1])
					}
				}
			})
		}
	})
}

// contend has clients take and give back the slots of some names again and again, every
// other one without waiting.
func contend(t *testing.T, b *base, names int) {
	t.Helper()
	const clients = 6
	rounds := 5
	if testkit.Campaign() {
		rounds = 50
	}
	inside, fences := make([]atomic.Int64, names), make([]atomic.Int64, names)
	var grants atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		s := b.store(t)
		all.Go(func() {
			for round := range rounds {
				n := (i + round) % names
				lease, err := enter(t, s, fmt.Sprint("n", n), i%2 == 1)
				if IsBusy(err) {
					continue
				}
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				grants.Add(1)
				if n := inside[n].Add(1); n != 1 {
					t.Errorf("client %d: %d are inside", i, n)
				}
				if f := lease.Grant().Fence; f <= fences[n].Swap(f) {
					t.Errorf("client %d: fence %d is not higher than the last", i, f)
				}
				runtime.Gosched()
				inside[n].Add(-1)
				if err := GiveBack(lease); err != nil {
					t.Errorf("client %d: Release: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
	if n := grants.Load(); n < int64(clients/2*rounds) {
		t.Errorf("%d grants, want those of all who wait", n)
	}
	Becomes(t, b.store(t), "n0", 0, 0)
}

// enter takes the slot.
func enter(t *testing.T, s *sql.Store, name string, impatient bool) (locks.Lease, error) {
	ctx, cancel := context.WithTimeout(background, testkit.Patience)
	defer cancel()
	r := NewRequest(t, name)
	r.NoWait = impatient
	ticket, err := s.Join(ctx, r)
	if err != nil {
		return nil, err
	}
	return ticket.Wait(ctx)
}
