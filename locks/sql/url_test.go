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
	. "golock/locks/locktest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// A store's URL has all but the password.
func TestURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"mysql://h/d", "mysql://h/d"},
		{"mariadb://me@a,b:7,[fe80::1]/d", "mariadb://me@a,b:7,[fe80::1]/d"},
		{"mysql://:s3cret@h/d", "mysql://h/d"},
		{"mysql://me:s3cret@h:1/d", "mysql://me@h:1/d"},
		{"mysql://me:s3%40cret%2F%3F%23@h/d", "mysql://me@h/d"},
		{"mysql://m%40e:s3cret@h@k:1/d", "mysql://m%40e@k:1/d"},
		{"mysql://me:s3cret@/a%2Fb%3Fc?socket=/run/a b", "mysql://me@/a%2Fb%3Fc?socket=/run/a%20b"},
		{"mysql://me@h/d?table=t&quarantine=1.5&parseTime=true", "mysql://me@h/d?table=t&quarantine=1.5&parseTime=true"},
		{"postgresql://u:s3cret@host/db?sslmode=verify-ca&sslrootcert=/r", "postgresql://u@host/db?sslmode=verify-ca&sslrootcert=/r"},
		{"postgres://u:s3cret@/é?host=/run/\x1b\xff", "postgres://u@/%C3%A9?host=/run/%1B%FF"},
	} {
		s, err := openAny(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if got := s.URL(); got != tt.want {
			t.Errorf("%s: URL() = %s, want %s", tt.in, got, tt.want)
		}
		if again, err := openAny(s.URL()); err != nil || again.URL() != s.URL() {
			t.Errorf("%s: URL() does not open the same store: %v", tt.in, err)
		}
	}
}

func TestBadURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"mysql:h", "two slashes"},
		{"postgres:/h/d", "two slashes"},
		{"mysqlx://h/d", "scheme"},
		{"mysql+unix://h/d", "scheme"},
		{"mysql://", "database"},
		{"mysql://h", "database"},
		{"mysql://h/", "database"},
		{"mysql://h/a\nb", "database"},
		{"mysql://h/%00", "database"},
		{"mysql://h/%zz", "database"},
		{"mysql:///d", "host"},
		{"mysql://me:s3cret@/d", "host"},
		{"mysql://a,/d", "host"},
		{"mysql://h h/d", `host "h h"`},
		{"mysql://h%20/d", "host"},
		{"mysql://h\nx/d", "host"},
		{"mysql://h:x/d", `port of host "h"`},
		{"mysql://h:0/d", "port"},
		{"mysql://h:70000/d", "port"},
		{"mysql://a:1,b:x/d", `port of host "b"`},
		{"mysql://::1/d", "square brackets"},
		{"mysql://[::1/d", "square brackets"},
		{"mysql://h/d#x", "fragment"},
		{"mysql://me:s3cret%@h/d", "password"},
		{"mysql://me:s3cret%00@h/d", "zero byte"},
		{"mysql://%:s3cret@h/d", "user"},
		{"mysql://h/d?nonsense=s3cret", `option "nonsense"`},
		{"mysql://h/d?nonsense", "is not known"},
		{"mysql://h/d?table=", "table"},
		{"mysql://h/d?table=1a", "table"},
		{"mysql://h/d?table=a.b.c", "table"},
		{"mysql://h/d?table=a;b", "table"},
		{"mysql://h/d?table=a%60b", "table"},
		{"mysql://h/d?table=a%22b", "table"},
		{"mysql://h/d?table=ä", "table"},
		{"mysql://h/d?table=" + strings.Repeat("a", 49), "table"},
		{"mysql://h/d?table=%zz", "table"},
		{"mysql://h/d?waiters=-1", "waiters"},
		{"mysql://h/d?waiters=1024", "waiters"},
		{"mysql://h/d?quarantine=soon", "quarantine"},
		{"mysql://h/d?quarantine=-1s", "quarantine"},
		{"mysql://h/d?quarantine=NaN", "quarantine"},
		{"mysql://h/d?quarantine=2h", "quarantine"},
		{"mysql://h/d?tls=yes", "tls"},
		{"mysql://h/d?tls=skip-verify", "does not verify the server: want on"},
		{"mysql://h/d?tls=off&tls=on", "contradict"},
		{"mysql://h/d?connect_timeout=soon", "connect_timeout"},
		{"mysql://h/d?tls=preferred", "does not verify"},
		{"postgres://h/d?sslmode=require", `option sslmode="require": does not verify the server: want verify-full`},
		{"postgres://h/d?sslmode=prefer", "does not verify the server: want verify-full"},
		{"postgres://h/d?sslmode=allow", "does not verify the server: want verify-full"},
		{"postgres://h/d?sslmode=full", "want verify-full"},
		{"postgres://h/d?sslmode=disable&tls=on", "options sslmode and tls: contradict"},
		{"postgres://h/d?sslrootcert=/c", "tls=on"},
		{"postgres://h/d?options=-csearch_path%3Dx", "table=SCHEMA.golock"},
		{"postgres://h/d?host=h", "option host"},
		{"postgres://h/d?target_session_attrs=standby", "read-write"},
		{"postgres://h/d?application_name=", "application_name"},
		{"postgres://h/d?ssl-mode=DISABLED", "is not known: want socket"},
		{"mariadb://h/d?ssl-mode=REQUIRED", `option ssl-mode="REQUIRED": does not verify the server: want VERIFY_IDENTITY`},
		{"mariadb://h/d?ssl-mode=PREFERRED", "does not verify the server: want VERIFY_IDENTITY"},
		{"mariadb://h/d?sslmode=disable", "is not known: want socket"},
		{"mariadb://h/d?allowCleartextPasswords=true", "in the clear"},
		{"mariadb://tcp(h)/d", `host "tcp(h)"`},
		{"mysql://h/d?ca=x", "tls=on"},
		{"mysql://h/d?tls=on&cert=x", "cert and key"},
		{"mysql://h/d?tls=on&key=x", "cert and key"},
		{"mysql://h/d?tls=on&ca=", "ca"},
		{"mysql://h/d?socket=s", "socket"},
		{"mysql://h/d?socket=", "socket"},
		{"mysql://h/d?socket=/s%00", "socket"},
		{"mysql://h/d?socket=/s", "host"},
		{"mysql://localhost,localhost/d?socket=/s", "host"},
		{"mysql://localhost/d?socket=/s&tls=on", "tls"},
		{"mysql://me:s3cret", "database"}, // no host
		{"mysql://me:s3cret/d", "port"},
		{"mysql://:s3cret/d", "host"},
		{"mysql://me:s3:cret:s3cret/d", "host"},
		{"mysql://me:s3cret@h:s3cret/d", "port"},
		{"mysql://me:1/s3cret@h/d", "%2F"}, // not escaped
		{"mysql://me:s3cret/1@h/d", "%2F"},
		{"mysql://me:s3cret?1@h/d", "%3F"},
		{"mysql://me:1?s3cret@h/d", "%3F"},
		{"mysql://me:1?table=s3cret@h/d", "%3F"},
		{"mysql://me:1/2?s3cret@h/d", "%3F"},
		{"mysql://me:1@h/s3cret@h/d", "%2F"},
		{"mysql://me:s3cret#1@h/d", "%23"},
	} {
		for _, in := range []string{tt.in, strings.Replace(tt.in, "mysql", "postgres", 1)} {
			_, err := openAny(in)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want something about %s", in, err, tt.want)
			}
		}
		if _, err := openAny(tt.in); err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error %q shows the password", tt.in, err)
		}
	}
}

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
				"Join": Denied(t, s, "n"), "Evict": s.Evict(background, NewRequest(t, "n").Ref, "x"),
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
		TLS(t, sqltest.ServerName, server.Certificate, server.Key, open, func(options ...string) string {
			return server.TCPURL(database, append(options, "tls=on", "quarantine=0")...)
		})
		Denied(t, f.openURL(t, server.TCPURL(database)), "n")

		// As the servers' own clients write it: the authority alone, or the name too.
		chain, full, files := "ssl-mode=VERIFY_CA", "ssl-mode=VERIFY_IDENTITY", "ssl-ca=%[1]s&ssl-cert=%[1]s&ssl-key=%[2]s"
		if f.name == "postgres" {
			chain, full, files = "sslmode=verify-ca", "sslmode=verify-full", "sslrootcert=%[1]s&sslcert=%[1]s&sslkey=%[2]s"
		}
		files = fmt.Sprintf(files, server.Certificate, server.Key)
		Release(t, Get(t, f.openURL(t, server.TCPURL(database, chain, files)), "chain"))
		Denied(t, f.openURL(t, server.TCPURL(database, full, files)), "n")
		Denied(t, f.openURL(t, server.TCPURL(database, "tls=verify-ca")), "n")
	})
}

// PostgreSQL is told the name of the application, and a server that does not answer is
// given up after connect_timeout.
func TestClientOptions(t *testing.T) {
	t.Parallel()
	f := postgresql()
	b := f.fresh(t)
	s := b.store(t, "application_name=my%20job", "connect_timeout=10")
	Take(t, s, "n")
	Queue(t, s, "n")
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
		// The cause has it wait until it has left.
		ctx, cancel := context.WithTimeoutCause(background, 1500*time.Millisecond, locks.ErrStandsStill)
		_, err := s.Join(ctx, NewRequest(t, "n"))
		cancel()
		var outage *locks.OutageError
		if !errors.As(err, &outage) {
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

// What a URL gives opens the same store. What stands where a password does is in nothing that it
// gives, whatever is wrong with the rest.
func FuzzURL(f *testing.F) {
	for _, seed := range [][2]string{
		{"me", "@h:1/d?table=s.x&waiters=3"},
		{"", "@a,[::1]:3/m?quarantine=2s&tls=on&cert=c&key=k"},
		{"me", "@localhost/d?socket=/a%2Fb"},
		{"", "@h/d?timeout=3.333333333s&ssl-mode=verify_ca&ssl-ca=x"},
		{"", "@h/d?connect_timeout=0.3333333333&sslmode=verify-full&application_name=a%20b"},
		{"me", "@/d%20e?host=/run/postgresql"},
		{"m%C3%A9", "@h/%F0%9F%98%80?ca=%2F%20&tls=on&server-name=n%25"},
		{"me", "/1@h/d"},
		{"me", ""},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "s3cr3tW0rd"
		// Else it is in another place.
		isPassword := !strings.ContainsAny(before, "/?#[") && !strings.Contains(before+after, secret)
		for _, scheme := range []string{"mysql", "postgres"} {
			in := scheme + "://" + before + ":" + secret + after
			s, err := openAny(in)
			if err != nil {
				if isPassword && strings.Contains(err.Error(), secret) {
					t.Errorf("%q: %v", in, err)
				}
				continue
			}
			if isPassword && strings.HasPrefix(after, "@") && strings.Contains(s.URL(), secret) {
				t.Errorf("%q gives %q", in, s.URL())
			}
			again, err := openAny(s.URL())
			if err != nil {
				t.Fatalf("%q gives %q: %v", in, s.URL(), err)
			}
			if again.URL() != s.URL() {
				t.Errorf("%q gives %q, and that %q", in, s.URL(), again.URL())
			}
		}
	})
}
