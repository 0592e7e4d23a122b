//go:build integration

package sql_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/user"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// What a connection cannot be made with is no outage. Whatever is asked, the error says which
// store it is of, and shows no secrets. Who leaves out the user means the one that golock runs as.
func TestBadConnection(t *testing.T) {
	me, err := user.Current()
	testkit.Must(t, err)
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		with := func(change ...string) string { return strings.NewReplacer(change...).Replace(b.server.TCPURL(b.name)) }
		for _, tt := range []struct{ what, url, want string }{
			{"a file that is not there", f.name + "://127.0.0.1:1/d?tls=on&ca=/nowhere", "option ca"},
			{"a file with nothing in it", f.name + "://127.0.0.1:1/d?tls=on&ca=/dev/null", "option ca"},
			{"another password", with(":secret@", ":s3cret@"), "user"},
			{"no password", with(":secret@", "@"), "user"},
			{"another user", with("golock:secret@", "nobody:s3cret@"), "nobody"},
			{"no user", with("golock:secret@", ""), me.Username},
			{"another database", with("/"+b.name, "/nodatabase"), "nodatabase"},
			{"a server without TLS", with("/"+b.name, "/"+b.name+"?tls=on"), "TLS"},
		} {
			s := f.openURL(t, tt.url)
			errs := map[string]error{
				"Join": locktest.ExpectFinalError(t, s, "n"), "Evict": s.Evict(background, []locks.Ref{locktest.NewRequest(t, "n").Ref}, "x")[0],
				"Forget": s.Forget(background, "n"),
			}
			_, errs["Sweep"] = s.Sweep(background, "", 0)
			_, errs["Examine"] = s.Examine(background, time.Minute)
			_, errs["Entries"] = s.Entries(background, "")
			for call, err := range errs {
				text := fmt.Sprint(err)
				if !strings.HasPrefix(text, s.URL()+": ") || !strings.Contains(text, tt.want) {
					t.Errorf("%s: %s: %v, want something about %s of the store %s", tt.what, call, err, tt.want, s.URL())
				}
				if strings.Contains(text, "s3cret") || strings.Contains(text, ":secret") {
					t.Errorf("%s: %s: %q shows the password", tt.what, call, text)
				}
			}
		}
	})
}

// The server's certificate is checked, and the client's is shown; nothing is sent in
// the clear to a server that wants TLS.
func TestTLS(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		server := sqltest.StartTLS(t, f.name)
		database := server.NewDatabase(t)
		open := func(url string) (locks.Store, error) { return f.open(url) }
		locktest.TLS(t, sqltest.ServerName, server.Certificate, server.Key, open, func(options ...string) string {
			return server.TCPURL(database, append(options, "tls=on", "quarantine=0")...)
		})
		locktest.ExpectFinalError(t, f.openURL(t, server.TCPURL(database)), "n")

		// As the servers' own clients write it: the authority alone, or the name too.
		chain, full, files := "ssl-mode=VERIFY_CA", "ssl-mode=VERIFY_IDENTITY", "ssl-ca=%[1]s&ssl-cert=%[1]s&ssl-key=%[2]s"
		if f.name == "postgres" {
			chain, full, files = "sslmode=verify-ca", "sslmode=verify-full", "sslrootcert=%[1]s&sslcert=%[1]s&sslkey=%[2]s"
		}
		files = fmt.Sprintf(files, server.Certificate, server.Key)
		locktest.Release(t, locktest.Acquire(t, f.openURL(t, server.TCPURL(database, chain, files)), "chain"))
		locktest.ExpectFinalError(t, f.openURL(t, server.TCPURL(database, full, files)), "n")
		locktest.ExpectFinalError(t, f.openURL(t, server.TCPURL(database, "tls=verify-ca")), "n")
	})
}

// PostgreSQL is told the name of the application, and a server that does not answer is
// given up after connect_timeout.
func TestClientOptions(t *testing.T) {
	t.Parallel()
	f := postgresql()
	b := f.fresh(t)
	s := b.store(t, "application_name=my%20job", "connect_timeout=10")
	locktest.AcquireAtOnce(t, s, "n")
	locktest.Enqueue(t, s, "n")
	b.listening(t, 1)
	named := "SELECT 1 FROM pg_stat_activity WHERE application_name='my job' AND datname='" + b.name + "'"
	if len(b.exec(t, named)) == 0 {
		t.Error("no connection has the name")
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer silent.Close()
	for _, f := range families() {
		s := f.openURL(t, f.name+"://u@"+silent.Addr().String()+"/d?connect_timeout=0.1")
		ctx, cancel := context.WithTimeout(background, 1500*time.Millisecond)
		r := locktest.NewRequest(t, "n")
		r.Hooks.StopsSoon = func() bool { return true } // it waits until it has left
		_, err := s.Join(ctx, r)
		cancel()
		if !errors.As(err, new(*locks.OutageError)) {
			t.Errorf("%s: Join = %v", f.name, err)
		}
	}
	_ = silent.(*net.TCPListener).SetDeadline(time.Now().Add(200 * time.Millisecond))
	tries := 0
	for {
		if _, err := silent.Accept(); err != nil {
			break
		}
		tries++
	}
	if tries < 6 {
		t.Errorf("%d connections were tried in 2 x 1.5 s", tries)
	}
}
