package open_test

import (
	"strings"
	"testing"

	"golock/locks/open"
)

// A scheme may be in upper case, or the one by which clients of the server know it.
func TestSchemes(t *testing.T) {
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
	}
}

// What is no store's is answered in one line, with what was meant and without passwords.
func TestUnknownSchemes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"reddis://:s3cret@h", `scheme "reddis" is not known: did you mean redis://?`},
		{"postgre://h/d", `did you mean postgres://?`},
		{"zookeeper://h", `scheme "zookeeper" is not known: want one of local,`},
		{"postgresql+psycopg2://me:s3cret@h/d", "did you mean postgresql://?"},
		{"mysql+pymysql://me:s3cret@h/d", "did you mean mysql://?"},
		{"ETCD://me:s3cret@h", "is not in this version: use redis://"},
		{"/var/lock/my jobs", "did you mean local:///var/lock/my%20jobs, a directory of locks, or flock:///var/lock/my%20jobs, one lock file?"},
		{"/1@s3cret:h", "begins with no scheme"},
		{"./dir", "begins with no scheme"},
		{"localhost:6379", "begins with no scheme"},
		{"s3cret@h:6379", "begins with no scheme"},
		{"s3cret", "begins with no scheme"},
		{"s3cret://", "scheme is not known"},
		{"me:s3cret@tcp(h:3307)/d?parseTime=true", "want mysql://me:PASSWORD@h:3307/d"},
		{"me:s3:@/cret@tcp(h)/d", "want mysql://me:PASSWORD@h/d"},
		{"me@tcp(h)/d", "want mysql://me@h/d"},
		{"tcp(h)/d", "want mysql://h/d"},
		{"me:s3cret@unix(/run/mysqld.sock)/d", "want mysql://me:PASSWORD@localhost/d?socket=/run/mysqld.sock"},
		{"mysql://me:s3cret@tcp(h)/d", `host "tcp(h)"`},
	} {
		_, err := open.Store(tt.in)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want something with %s", tt.in, err, tt.want)
		} else if text := err.Error(); strings.Contains(text, "s3cret") || len(text) > 240 || strings.Contains(text, "\n") {
			t.Errorf("%s: %q shows the password, or is long", tt.in, text)
		}
	}
}
