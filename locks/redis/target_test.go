package redis

import (
	"fmt"
	"strings"
	"testing"
)

func TestTarget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"redis://h", "Addrs:[h:6379] DB:0 prefix:golock replicas:0 Quarantine:3s TLS:false"},
		{"redis://h:7000/3", "Addrs:[h:7000] DB:3"},
		{"redis://h?db=3", "DB:3"},
		{"redis://[::1]", "Addrs:[[::1]:6379]"},
		{"redis://me:s3%40cret%2F@h", "Username:me Password:s3@cret/"},
		{"redis://m%40e:s3cret@h@k:1", "Addrs:[k:1] Username:m@e Password:s3cret@h"},
		{"redis://h?prefix=a:b&quarantine=0&min-replicas=2", "prefix:a:b Quarantine:0s replicas:2"},
		{"redis://h?quarantine=1.5", "Quarantine:1.5s"},
		{"rediss://h?ca=/a%20b&cert=c&key=d&server-name=n", "TLS:true AnyName:false ca:/a b cert:c key:d serverName:n"},
		{"redis+unix:///run/a%3Fb?db=2", "kind:+unix Addrs:[/run/a?b] DB:2"},
		{"redis+sentinel://a,b:1/main/2", "kind:+sentinel Addrs:[a:26379 b:1] MasterName:main DB:2"},
		{"redis+sentinel://a/m%2Fn?sentinel-user=x&sentinel-password=y", "MasterName:m/n SentinelUsername:x SentinelPassword:y"},
		{"rediss+sentinel://a/main", "TLS:true kind:+sentinel"},
		{"redis+cluster://a,b:7001", "kind:+cluster Addrs:[a:6379 b:7001]"},
		{"rediss+cluster://a/0", "TLS:true kind:+cluster DB:0"},
		{"redis://h?dial_timeout=5s&read_timeout=0.5&write_timeout=1", "DialTimeout:2000000000 ReadTimeout:500000000 WriteTimeout:1000000000"},
		{"redis://h?dial_timeout=0&read_timeout=-1&write_timeout=-2s", "DialTimeout:2000000000 ReadTimeout:2000000000 WriteTimeout:2000000000"},
		{"redis://h?protocol=3&skip_verify=false", "Addrs:[h:6379]"},
		{"redis+unix:///s?protocol=2&db=1", "DB:1"},
	} {
		target, err := parse(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		got := fmt.Sprintf("%+v", *target)
		for _, field := range strings.Split(tt.want, " ") {
			if !strings.Contains(got, field) {
				t.Errorf("%s: %s has no %s", tt.in, got, field)
			}
		}
	}
}
