//go:build integration

package redis_test

import (
	"strings"
	"testing"

	"golock/locks/redis"
)

// A store's URL has all but the passwords.
func TestURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
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
	} {
		s, err := redis.Open(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if got := s.URL(); got != tt.want {
			t.Errorf("%s: URL() = %s, want %s", tt.in, got, tt.want)
		}
		if again, err := redis.Open(s.URL()); err != nil || again.URL() != s.URL() {
			t.Errorf("%s: URL() does not open the same store: %v", tt.in, err)
		}
	}
}

// What all servers' URLs have in common is refused in package sql's test of the same name.
func TestBadURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
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
		{"redis+unix:///run/a@b", "an @ elsewhere is %40"},
		{"redis://me:1/s3cret@h", "%2F"}, // not escaped
		{"redis://me:1?s3cret@h", "%3F"},
		{"redis+unix://me:s3cret/1@/sock", "%2F"},
		{"redis+sentinel://me:s3cret/1@h/m", "%2F"},
		{"redis://h?protocol=4", "protocol"},
		{"redis://h?dial_timeout=soon", "dial_timeout"},
		{"rediss://h?skip_verify=true", "always verified"},
	} {
		_, err := redis.Open(tt.in)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want something about %s", tt.in, err, tt.want)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error %q shows the password", tt.in, err)
		}
	}
}

func FuzzURL(f *testing.F) {
	f.Add("redis://me:s3cret@h:1/2?prefix=x")
	f.Add("redis+sentinel://a,[::1]:3/m/1?quarantine=2s&sentinel-password=x")
	f.Add("redis+unix:///a%2Fb?db=1")
	f.Add("rediss://h?dial_timeout=3.333333333&read_timeout=1ms&protocol=3")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := redis.Open(text)
		if err != nil {
			return
		}
		again, err := redis.Open(s.URL())
		if err != nil {
			t.Fatalf("%q gives %q: %v", text, s.URL(), err)
		}
		if again.URL() != s.URL() {
			t.Errorf("%q gives %q, and that %q", text, s.URL(), again.URL())
		}
	})
}
