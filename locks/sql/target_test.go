package sql

import (
	"fmt"
	"strings"
	"testing"
)

// Options mean what they mean to the servers' own clients.
func TestTarget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"mysql://me@h/d", "hosts:[h:3306] Database:d User:me table:golock waiters:-1 Quarantine:3s TLS:false"},
		{"mysql://m%40e:s3%40cret%2F%3F%23@k:1/d", "hosts:[k:1] User:m@e Password:s3@cret/?#"},
		{"mysql://me@h/a%2Fb%3Fc", "Database:a/b?c"},
		{"mysql://me@[::1]/d", "hosts:[[::1]:3306]"},
		{"mysql://me@a,b:7,[fe80::1]/d", "hosts:[a:3306 b:7 [fe80::1]:3306]"},
		{"mysql://me@/d?socket=/run/a%20b", "hosts:[/run/a b] Socket:/run/a b Port:3306"},
		{"mysql://me@localhost:7/d?socket=/run/s", "hosts:[/run/s] Port:7"},
		{"mysql://me@h/d?table=s.t_1", "table:s.t_1"},
		{"mysql://me@h/d?waiters=0&quarantine=1.5", "waiters:0 Quarantine:1.5s"},
		{"mysql://me@h/d?quarantine=2m&waiters=1023", "waiters:1023 Quarantine:2m0s"},
		{"mysql://me@h/d?tls=on&ca=/a%20b&cert=c&key=k&server-name=n", "TLS:true AnyName:false ca:/a b cert:c key:k serverName:n"},
		{"mysql://me@h/d?tls=true", "TLS:true AnyName:false"},
		{"mysql://me@h/d?tls=false", "TLS:false"},
		{"mysql://me@h/d?tls=off", "TLS:false"},
		{"mysql://me@h/d?tls=verify-ca", "TLS:true AnyName:true"},
		{"mysql://me@h/d?ssl-mode=disabled&tls=off", "TLS:false"},
		{"mysql://me@h/d?ssl-mode=VERIFY_CA&ssl-ca=/c", "TLS:true AnyName:true ca:/c"},
		{"mysql://me@h/d?ssl-ca=/c&ssl-cert=/x&ssl-key=/k&ssl-mode=VERIFY_IDENTITY", "TLS:true AnyName:false ca:/c cert:/x key:/k"},
		{"mysql://me@h/d?parseTime=true&charset=utf8mb4&collation=x&loc=Local&interpolateParams=true&multiStatements=true", "hosts:[h:3306]"},
		{"mysql://me@h/d?timeout=2500ms&readTimeout=3s&writeTimeout=1m&allowCleartextPasswords=false", "connectTimeout:2500000000"},
		{"postgres://u@host:5432/db?sslmode=verify-full", "hosts:[host:5432] TLS:true AnyName:false"},
		{"postgresql://u@host/db?sslmode=verify-ca&sslrootcert=/r&sslcert=/c&sslkey=/k", "hosts:[host:5432] TLS:true AnyName:true ca:/r cert:/c key:/k"},
		{"postgres://u@host/db?sslmode=verify-full&sslrootcert=system", "TLS:true AnyName:false ca: cert:"},
		{"postgres://u@host/db?sslmode=disable&connect_timeout=20&application_name=my%20job", "TLS:false Application:my job connectTimeout:20000000000"},
		{"postgres://u@host/db?connect_timeout=0&target_session_attrs=read-write&keepalives=1&client_encoding=utf8", "connectTimeout:60000000000"},
		{"postgres://u@h1,h2/db?connect_timeout=20", "connectTimeout:4000000000"},
		{"postgres:///d?host=%2Frun%2Fpostgresql&sslmode=disable", "hosts:[/run/postgresql] Port:5432"},
		{"postgres://me@localhost:5433/d?socket=/run/postgresql", "hosts:[/run/postgresql] Port:5433"},
	} {
		d := Dialect{Schemes: []string{"mysql", "mariadb"}, Port: "3306"}
		if strings.HasPrefix(tt.in, "postgres") {
			d = Dialect{Schemes: []string{"postgres", "postgresql"}, Port: "5432"}
		}
		target, err := parse(tt.in, d)
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
