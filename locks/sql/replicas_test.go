//go:build integration

package sql_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// awaitStandby makes the commits of a PostgreSQL server wait for its standby, or for one that
// there is not.
func awaitStandby(t *testing.T, b *base, names, state string) {
	t.Helper()
	b.exec(t, "ALTER SYSTEM SET synchronous_standby_names='"+names+"'")
	b.exec(t, "SELECT pg_reload_conf()")
	testkit.Eventually(t, "the setting is in force", func() bool {
		rows := b.exec(t, "SELECT sync_state,current_setting('synchronous_standby_names') FROM pg_stat_replication")
		return len(rows) == 1 && rows[0][0] == state && rows[0][1] == names
	})
}

// A renewal that the standby has not confirmed is none, also if somebody ends the wait for it: the
// server then reports success, and a warning.
func TestStandbyDoesNotConfirm(t *testing.T) {
	t.Parallel()
	b := postgresql().alone(t)
	standby := sqltest.StartStandby(t, b.server)
	awaitStandby(t, b, "*", "sync")
	l := locktest.AcquireAtOnce(t, b.store(t), "n")
	locktest.Renew(t, l)
	term := l.Term()
	standby.Pause()
	testkit.Eventually(t, "the wait for the standby is cancelled", func() bool {
		renewed := make(chan error, 1)
		go func() {
			_, err := l.Renew(background)
			renewed <- err
		}()
		for {
			b.exec(t, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event='SyncRep'")
			select {
			case err := <-renewed:
				if err == nil || errors.Is(err, locks.ErrLost) {
					t.Fatalf("Renew = %v", err)
				}
				return strings.Contains(err.Error(), "synchronous replication") // the server's words
			default:
			}
		}
	})
	if l.Term() != term {
		t.Errorf("the lease ends with %v, not with %v", l.Term(), term)
	}
	standby.Resume()
	testkit.Eventually(t, "it renews", func() bool { return locktest.TryRenew(l) == nil })
}

func TestDoctorStandbys(t *testing.T) {
	t.Parallel()
	f := postgresql()
	b := f.alone(t)
	says := func(level locks.Level, what string) {
		t.Helper()
		locktest.ExpectFinding(t, examine(t, f, b.server.URL(b.name)), "standbys", level, what)
	}
	says(locks.OK, "none is connected")
	sqltest.StartStandby(t, b.server)
	says(locks.Problem, "1 connected, and commits do not wait")
	awaitStandby(t, b, "*", "sync")
	says(locks.Note, "cannot see")
	b.exec(t, "GRANT pg_read_all_stats TO golock")
	says(locks.OK, "grants and renewals wait")
	awaitStandby(t, b, "nobody", "async")
	says(locks.Problem, "none that synchronous_standby_names (nobody) asks for")
}

func TestDoctorReplicas(t *testing.T) {
	t.Parallel()
	f := mariadb()
	b := f.alone(t, "log_bin=binlog", "server_id=1")
	says := func(level locks.Level, what string) {
		t.Helper()
		locktest.ExpectFinding(t, examine(t, f, b.server.URL(b.name)), "replicas", level, what)
	}
	if sqltest.MySQL() { // it lists its replicas to those who may replicate
		says(locks.Note, "cannot be seen")
		return
	}
	says(locks.OK, "none is connected")
	b.exec(t, "CREATE USER replica@'%' IDENTIFIED BY 'x'")
	b.exec(t, "GRANT REPLICATION SLAVE ON *.* TO replica@'%'")
	replica := f.alone(t, "server_id=2")
	replica.exec(t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s',MASTER_PORT=%d,MASTER_USER='replica',MASTER_PASSWORD='x'",
		b.server.Host, b.server.Port))
	replica.exec(t, "START SLAVE")
	testkit.Eventually(t, "the replica is connected", func() bool {
		return b.exec(t, "SHOW GLOBAL STATUS LIKE 'Slaves_connected'")[0][1] == "1"
	})
	says(locks.Problem, "1 connected, and commits do not wait")
	b.exec(t, "SET GLOBAL rpl_semi_sync_master_enabled=1")
	says(locks.Problem, "for 10s at most")
	b.exec(t, "SET GLOBAL rpl_semi_sync_master_timeout=86400000")
	says(locks.OK, "commits wait for one of them")
}

// A primary that was replaced, and came back without its standbys, turns nobody away: what it knows may be
// old. Its commits hang, so the other host is asked.
func TestHostHangsAtCommit(t *testing.T) {
	t.Parallel()
	f := postgresql()
	b := f.fresh(t)
	hung := f.start(t)
	hung.MakeDatabase(t, b.name)
	url := sqltest.URLAt(hung, hung.Addr()+","+b.server.Addr(), b.name, "quarantine=0")
	locktest.AcquireAtOnce(t, f.openURL(t, url), "n") // the other host never hears of it
	hung.Exec(t, "", "ALTER SYSTEM SET synchronous_standby_names='nobody'")
	hung.Exec(t, "", "SELECT pg_reload_conf()")
	testkit.Eventually(t, "the setting is in force", func() bool {
		return hung.Exec(t, "", "SELECT current_setting('synchronous_standby_names')")[0][0] == "nobody"
	})
	locktest.Release(t, locktest.AcquireAtOnce(t, f.openURL(t, url), "n"))
}
