package open_test

import (
	"strings"
	"testing"

	"golock/locks/open"
)

// A store's URL has all but the password, and opens the same store. A scheme may be in upper case,
// or the one by which clients of the server know it.
func TestURLs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"LOCAL:///d", "local:///d"},
		{"Flock:///D/f", "flock:///D/f"},
		{"MKDIR:///d", "mkdir:///d"},
		{"BIND://@Name", "bind://@Name"},
		{"REDIS://Me:Pw@h", "redis://Me@h"},
		{"PostgreSQL://h/D", "postgresql://h/D"},
		{"MySQL://me@h/d", "mysql://me@h/d"},
		{"pgsql://h/d", "postgres://h/d"},
		{"valkey://h", "redis://h"},
		{"valkeys://h", "rediss://h"},
		{"unix:///run/redis.sock?db=1", "redis+unix:///run/redis.sock?db=1"},
		{"unix://me:pw@/run/redis.sock", "redis+unix://me@/run/redis.sock"},
		{"redis-sentinel://a,b/main/1", "redis+sentinel://a,b/main/1"},
		{"rediss-sentinel://a/main", "rediss+sentinel://a/main"},
		{"flock:///tmp/a%20b", "flock:///tmp/a%20b"},
		{"flock:///tmp/a b%25", "flock:///tmp/a%20b%25"},
		{"symlink:///mnt/a%20b%25", "symlink:///mnt/a%20b%25"},
		{"excl:///x/", "excl:///x/"},
		{"fcntl:///tmp/\xc3\xa4%3F%23", "fcntl:///tmp/%C3%A4%3F%23"},
		{"bind://127.0.0.1:7001/", "bind://127.0.0.1:7001"},
		{"bind://[0:0::1]:7001", "bind://[::1]:7001"},
		{"bind://@a%2Fb/c", "bind://@a/b/c"},
		{"bind://@" + strings.Repeat("x", 104), "bind://@" + strings.Repeat("x", 104)},
		{"bind:///" + strings.Repeat("x", 106), "bind:///" + strings.Repeat("x", 106)},
		{"bind:///tmp/with%20blanks", "bind:///tmp/with%20blanks"},
		{"redis://h", "redis://h"},
		{"redis://h/", "redis://h"},
		{"redis://[::1]:7000/0", "redis://[::1]:7000/0"},
		{"redis://:s3cret@h", "redis://h"},
		{"redis://me:s3cret@h", "redis://me@h"},
		{"redis://m%40e:s3cret@h@k:1", "redis://m%40e@k:1"},
		{"redis://h?prefix=a b&quarantine=0&min-replicas=2", "redis://h?prefix=a%20b&quarantine=0&min-replicas=2"},
		{"redis+unix://me:s3cret@/run/a%3Fb?db=2", "redis+unix://me@/run/a%3Fb?db=2"},
		{"redis+sentinel://:s3cret@a/m%2Fn/2?sentinel-user=x&sentinel-password=s3cret2", "redis+sentinel://a/m%2Fn/2?sentinel-user=x"},
		{"redis+sentinel://a/m?sentinel-password=s3cret2", "redis+sentinel://a/m"},
		{"rediss+cluster://a,b:7001?ca=/a%20b", "rediss+cluster://a,b:7001?ca=/a%20b"},
		{"mysql://h/d", "mysql://h/d"},
		{"mariadb://me@a,b:7,[fe80::1]/d", "mariadb://me@a,b:7,[fe80::1]/d"},
		{"mysql://:s3cret@h/d", "mysql://h/d"},
		{"mysql://me:s3cret@h:1/d", "mysql://me@h:1/d"},
		{"mysql://me:s3%40cret%2F%3F%23@h/d", "mysql://me@h/d"},
		{"mysql://m%40e:s3cret@h@k:1/d", "mysql://m%40e@k:1/d"},
		{"mysql://me:s3cret@/a%2Fb%3Fc?socket=/run/a b", "mysql://me@/a%2Fb%3Fc?socket=/run/a%20b"},
		{"mysql://me@h/d?table=t&quarantine=1.5&parseTime=true", "mysql://me@h/d?table=t&quarantine=1.5&parseTime=true"},
		{"postgresql://u:s3cret@host/db?sslmode=verify-ca&sslrootcert=/r", "postgresql://u@host/db?sslmode=verify-ca&sslrootcert=/r"},
		{"ETCD://h", "etcd://h"},
		{"etcd://me:s3cret@h1,[::1]:7/a%20b/c?dial_timeout=1s", "etcd://me@h1,[::1]:7/a%20b/c?dial_timeout=1s"},
		{"etcds://h?ca=/a b&server-name=n", "etcds://h?ca=/a%20b&server-name=n"},
		{"postgres://u:s3cret@/é?host=/run/%1B\xff", "postgres://u@/%C3%A9?host=/run/%1B%FF"},
	} {
		s, err := open.Store(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		defer s.Close()
		if s.URL() != tt.want {
			t.Errorf("%s: URL() = %s, want %s", tt.in, s.URL(), tt.want)
		}
		again, err := open.Store(s.URL())
		if err != nil || again.URL() != s.URL() {
			t.Errorf("%s: URL() does not open the same store: %v", tt.in, err)
		}
	}
}

// What is wrong with a URL is told in one line, with what was meant and without passwords. What is
// wrong for mysql is so for postgres.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	for _, words := range [][]string{
		{"reddis://:s3cret@h", `scheme "reddis" is not known: did you mean redis://?`},
		{"postgre://h/d", `did you mean postgres://?`},
		{"zookeeper://h", `scheme "zookeeper" is not known: expected one of local,`},
		{"postgresql+psycopg2://me:s3cret@h/d", "did you mean postgresql://?"},
		{"mysql+pymysql://me:s3cret@h/d", "did you mean mysql://?"},
		{"/var/lock/my jobs", "did you mean local:///var/lock/my%20jobs, a directory of locks, or flock:///var/lock/my%20jobs, one lock file?"},
		{"local:///d\nlocal:///other", "contains the control character U+000A"},
		{"flock:///d\u0085", "contains the control character U+0085"},
		{"redis://:s3cret@h\r\n/0", "contains the control character U+000D"},
		{"/1@s3cret:h", "begins with no scheme"},
		{"./dir", "begins with no scheme"},
		{"localhost:6379", "begins with no scheme"},
		{"s3cret@h:6379", "begins with no scheme"},
		{"s3cret", "begins with no scheme"},
		{"s3cret://", "scheme is not known"},
		{"me:s3cret@tcp(h:3307)/d?parseTime=true", "expected mysql://me:PASSWORD@h:3307/d"},
		{"me:s3:@/cret@tcp(h)/d", "expected mysql://me:PASSWORD@h/d"},
		{"me@tcp(h)/d", "expected mysql://me@h/d"},
		{"tcp(h)/d", "expected mysql://h/d"},
		{"me:s3cret@unix(/run/mysqld.sock)/d", "expected mysql://me:PASSWORD@localhost/d?socket=/run/mysqld.sock"},
		{"mysql://me:s3cret@tcp(h)/d", `host "tcp(h)"`},

		{"flock:", "flock:///FILE"},
		{"flock:/x", "flock:///FILE"},
		{"flock://", "path"},
		{"flock:///", "path"},
		{"flock://host/x", "host"},
		{"flock:///x?wait=1", "options", "?wait=1"},
		{"flock:///%zz", "path"},
		{"flock:///a%00b", "zero byte"},
		{"fcntl://x", "host", "fcntl:///"},
		{"mkdir", "mkdir:///DIR", "two slashes"},
		{"mkdir:///", "name a directory"},
		{"excl:///x?ttl=3", "options"},
		{"bind:", "bind://127.0.0.1:PORT"},
		{"bind://", "address and a port"},
		{"bind://7001", "address and a port"},
		{"bind://:7001", "address and a port"},
		{"bind://127.0.0.1", "address and a port"},
		{"bind://localhost:7001", "host", "localhost", "IP address"},
		{"bind://127.0.0.1:0", "port"},
		{"bind://127.0.0.1:65536", "port"},
		{"bind://127.0.0.1:ssh", "port"},
		{"bind://0.0.0.0:7001", "host", "all addresses"},
		{"bind://[::]:7001", "host", "all addresses"},
		{"bind://[::ffff:1.2.3.4]:70", "host"},
		{"bind://[fe80::1%25lo]:7001", "host"},
		{"bind://224.0.0.1:7001", "host"},
		{"bind://127.0.0.1:7001?x", "options"},
		{"bind://@", "name"},
		{"bind://@a%00", "zero byte"},
		{"bind://@" + strings.Repeat("x", 200), "name", "bytes long"},
		{"bind:///" + strings.Repeat("x", 200), "path", "bytes long"},
		{"bind:///x#y", "options"},

		{"redis:h", "two slashes"},
		{"redis://", "host"},
		{"redis://s3cret:s3cret@", "host"},
		{"redis://:s3cret@h:70000", "port"},
		{"redis://a,b", "one is enough"},
		{"redis://h/x", `db "x"`},
		{"redis://h/-1", "db"},
		{"redis://h/1/2", "db"},
		{"redis://h?db=x", "db"},
		{"redis://h?nonsense=s3cret", `option "nonsense"`},
		{"redis://h?quarantine=soon", "quarantine"},
		{"redis://h?min-replicas=0", "min-replicas"},
		{"redis://h?prefix=", "prefix"},
		{"redis://h?prefix=%7B", "prefix"},
		{"redis://h?ca=x", "TLS"},
		{"redis://h?sentinel-password=s3cret", "sentinel-user and sentinel-password"},
		{"redis+unix://h/sock", "host"},
		{"redis+unix://", "path"},
		{"redis+sentinel://a", "master"},
		{"redis+sentinel://a/m/x", "db"},
		{"redis+cluster://a/1", "db"},
		{"redis+cluster://a?db=1", "db"},
		{"redis+unix:///run/a@b", "@ elsewhere is %40"},
		{"redis://me:1/s3cret@h", "%2F"}, // not escaped
		{"redis://me:1?s3cret@h", "%3F"},
		{"redis+unix://me:s3cret/1@/sock", "%2F"},
		{"redis+sentinel://me:s3cret/1@h/m", "%2F"},
		{"etcd:h", "two slashes"},
		{"etcd://", "host"},
		{"etcd://me:s3cret@", "host"},
		{"etcd://:s3cret@h", "user"},
		{"etcd://h:70000", "port"},
		{"etcd://h/a%0ab", "prefix"},
		{"etcd://h/" + strings.Repeat("a", 256), "prefix"},
		{"etcd://h?prefix=s3cret", `option "prefix"`, "dial_timeout"},
		{"etcd://h?quarantine=3s", "forgets nothing"},
		{"etcd://h?ca=x", "etcds://"},
		{"etcds://h?cert=x", "cert and key"},
		{"etcd://h?dial_timeout=soon", "dial_timeout"},
		{"etcd://me:1/s3cret@h", "%2F"}, // not escaped
		{"etcdd://h", "did you mean etcd://?"},
		{"redis://h?protocol=4", "protocol"},
		{"redis://h?dial_timeout=soon", "dial_timeout"},
		{"rediss://h?skip_verify=true", "always verified"},

		{"mysql:h", "two slashes"},
		{"postgres:/h/d", "two slashes"},
		{"mysqlx://h/d", "scheme"},
		{"mysql+unix://h/d", "scheme"},
		{"mysql://", "database"},
		{"mysql://h", "database"},
		{"mysql://h/", "database"},
		{"mysql://h/a%0Ab", "database"},
		{"mysql://h/%00", "database"},
		{"mysql://h/%zz", "database"},
		{"mysql:///d", "host"},
		{"mysql://me:s3cret@/d", "host"},
		{"mysql://a,/d", "host"},
		{"mysql://h h/d", `host "h h"`},
		{"mysql://h%20/d", "host"},
		{"mysql://h%0Ax/d", "host"},
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
		{"mysql://h/d?tls=skip-verify", "does not verify the server: expected on"},
		{"mysql://h/d?tls=off&tls=on", "contradict"},
		{"mysql://h/d?connect_timeout=soon", "connect_timeout"},
		{"mysql://h/d?tls=preferred", "does not verify"},
		{"postgres://h/d?sslmode=require", `option sslmode="require": does not verify the server: expected verify-full`},
		{"postgres://h/d?sslmode=prefer", "does not verify the server: expected verify-full"},
		{"postgres://h/d?sslmode=allow", "does not verify the server: expected verify-full"},
		{"postgres://h/d?sslmode=full", "expected verify-full"},
		{"postgres://h/d?sslmode=disable&tls=on", "options sslmode and tls: contradict"},
		{"postgres://h/d?sslrootcert=/c", "tls=on"},
		{"postgres://h/d?options=-csearch_path%3Dx", "table=SCHEMA.golock"},
		{"postgres://h/d?host=h", "option host"},
		{"postgres://h/d?target_session_attrs=standby", "read-write"},
		{"postgres://h/d?application_name=", "application_name"},
		{"postgres://h/d?ssl-mode=DISABLED", "is not known: expected socket"},
		{"mariadb://h/d?ssl-mode=REQUIRED", `option ssl-mode="REQUIRED": does not verify the server: expected VERIFY_IDENTITY`},
		{"mariadb://h/d?ssl-mode=PREFERRED", "does not verify the server: expected VERIFY_IDENTITY"},
		{"mariadb://h/d?sslmode=disable", "is not known: expected socket"},
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
		for _, in := range []string{words[0], strings.Replace(words[0], "mysql://", "postgres://", 1)} {
			_, err := open.Store(in)
			if err == nil {
				t.Errorf("%q is accepted", in)
				continue
			}
			for _, want := range words[1:] {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q: %v, want something with %s", in, err, want)
				}
			}
			if text := err.Error(); strings.Contains(text, "s3cret") || strings.Contains(text, "\n") {
				t.Errorf("%q: %q shows the password, or has several lines", in, text)
			}
		}
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
		{"me", "@h:1/2?prefix=x"},
		{"", "@a,[::1]:3/m/1?quarantine=2s&sentinel-password=x"},
		{"me", "@/a%2Fb?db=1"},
		{"", "@h?dial_timeout=3.333333333&read_timeout=1ms&protocol=3"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "s3cr3tW0rd"
		// Else it is in another place.
		isPassword := !strings.ContainsAny(before, "/?#[") && !strings.Contains(before+after, secret)
		for _, scheme := range []string{"mysql", "postgres", "redis", "rediss", "redis+sentinel", "redis+unix", "etcd"} {
			in := scheme + "://" + before + ":" + secret + after
			s, err := open.Store(in)
			if err != nil {
				if isPassword && strings.Contains(err.Error(), secret) {
					t.Errorf("%q: %v", in, err)
				}
				continue
			}
			if isPassword && strings.HasPrefix(after, "@") && strings.Contains(s.URL(), secret) {
				t.Errorf("%q gives %q", in, s.URL())
			}
			again, err := open.Store(s.URL())
			if err != nil {
				t.Fatalf("%q gives %q: %v", in, s.URL(), err)
			}
			if again.URL() != s.URL() {
				t.Errorf("%q gives %q, and that %q", in, s.URL(), again.URL())
			}
		}
	})
}
