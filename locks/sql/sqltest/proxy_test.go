//go:build integration

package sqltest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"golock/locks/sql/sqltest"
)

// proxied runs a test for a proxy before each server, and before a pooler.
func proxied(t *testing.T, test func(t *testing.T, s *sqltest.Server, database string, p *sqltest.Proxy)) {
	for name, share := range map[string]func(testing.TB) *sqltest.Server{"mariadb": sqltest.Maria, "postgres": sqltest.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := share(t)
			database, _ := table(t, s)
			test(t, s, database, sqltest.NewProxy(t, s))
		})
	}
	t.Run("pgbouncer", func(t *testing.T) {
		t.Parallel()
		s := sqltest.Postgres(t)
		database, _ := table(t, s)
		test(t, s, database, sqltest.NewProxy(t, sqltest.StartBouncer(t, s, sqltest.Transaction)))
	})
}

// about gives a verdict on requests that contain a text.
func about(text string, v sqltest.Verdict) func(string) sqltest.Verdict {
	return func(statement string) sqltest.Verdict {
		if strings.Contains(statement, text) {
			return v
		}
		return sqltest.Pass
	}
}

// Losing a reply is losing it when all has been done: the first of the results
// comes long before the commit.
func TestProxyLosesReply(t *testing.T) {
	t.Parallel()
	proxied(t, func(t *testing.T, s *sqltest.Server, database string, p *sqltest.Proxy) {
		c := open(t, p.URL(database))
		p.Judge(about("COMMIT", sqltest.LoseReply))
		slow := "SELECT SLEEP(0.3), 8"
		if s.Kind == "postgres" {
			slow = "SELECT pg_sleep(0.3), 8"
		}
		if _, err := c.try("BEGIN; SELECT n, 'text', NULL FROM t; UPDATE t SET n = 1; " + slow + "; SELECT n FROM t WHERE n = 7; COMMIT"); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("there was a reply, or nothing at all: %v", err)
		}
		if got := value(t, s, database); got != "1" {
			t.Errorf("n = %s: the server has not done it", got)
		}
		c = open(t, p.URL(database))
		if got := c.do(t, "SELECT n FROM t"); got != "1" {
			t.Error(got)
		}
		if _, err := c.try("BEGIN; UPDATE nothing SET n = 2; COMMIT"); err == nil || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "nothing") {
			t.Errorf("the reply that was lost is an error: %v", err)
		}
	})
}

// Losing a request is losing it before the server has it.
func TestProxyLosesRequest(t *testing.T) {
	t.Parallel()
	proxied(t, func(t *testing.T, s *sqltest.Server, database string, p *sqltest.Proxy) {
		c := open(t, p.URL(database))
		before := p.Requests()
		c.do(t, "UPDATE t SET n = 1")
		p.Judge(about("UPDATE", sqltest.Lose))
		if _, err := c.try("UPDATE t SET n = 2"); err == nil {
			t.Error("there was a reply")
		}
		if n := p.Requests() - before; n != 2 {
			t.Errorf("%d requests", n)
		}
		if got := value(t, s, database); got != "1" {
			t.Errorf("n = %s", got)
		}
		p.Judge(nil)
		c = open(t, p.URL(database))
		p.Cut()
		if _, err := c.try("SELECT 1"); err == nil {
			t.Error("a cut connection works")
		}
		p.Refuse(true)
		if _, err := dial(t, p.URL(database)); err == nil {
			t.Error("a refused connection works")
		}
		p.Refuse(false)
		open(t, p.URL(database)).do(t, "SELECT 1")
	})
}

// What is frozen or hangs has no answer; what is thawed has one.
func TestProxyWaits(t *testing.T) {
	t.Parallel()
	proxied(t, func(t *testing.T, s *sqltest.Server, database string, p *sqltest.Proxy) {
		c := open(t, p.URL(database))
		p.Freeze()
		answer := make(chan error, 1)
		ask := func() {
			_, err := c.try("UPDATE t SET n = n + 1")
			answer <- err
		}
		silent := func() {
			t.Helper()
			select {
			case err := <-answer:
				t.Fatalf("an answer: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
		}
		go ask()
		silent()
		if got := value(t, s, database); got != "0" {
			t.Errorf("n = %s: the server has the request", got)
		}
		p.Thaw()
		if err := <-answer; err != nil {
			t.Error(err)
		}

		p.Judge(about("UPDATE", sqltest.Hang))
		go ask()
		silent()
		p.Cut()
		if err := <-answer; err == nil {
			t.Error("a request that hung was answered")
		}
		if got := value(t, s, database); got != "1" {
			t.Errorf("n = %s", got)
		}
	})
}
