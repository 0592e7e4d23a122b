package sqltest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// The modes of a Bouncer: how long a client keeps a connection to the server.
const (
	Session     = "session"
	Transaction = "transaction"
)

// Bouncer is a PgBouncer in front of a PostgreSQL server.
type Bouncer struct {
	server.Process
}

// StartBouncer starts one, with options as in "default_pool_size=1". It knows
// the user golock only.
func StartBouncer(t testing.TB, s *Server, mode string, options ...string) *Bouncer {
	t.Helper()
	dir, err := newDir("pgbouncer", s.Credential)
	testkit.Must(t, err)
	b := &Bouncer{server.Process{Host: server.Loopback, Socket: dir, Dir: dir, Credential: s.Credential}}
	t.Cleanup(func() {
		b.Kill()
		os.RemoveAll(dir)
	})
	testkit.Must(t, b.StartAnywhere(server.SQLPorts, func() error {
		if err := b.settle(s, mode, options); err != nil {
			return err
		}
		return b.start()
	}))
	return b
}

// settle writes its files.
func (b *Bouncer) settle(s *Server, mode string, options []string) error {
	file := func(name string) string { return filepath.Join(b.Dir, name) }
	for name, text := range map[string]string{
		"users": fmt.Sprintf("%q %q\n", s.User, Password),
		"hba":   "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n",
		"ini": fmt.Sprintf("[databases]\n* = host=%s port=%d\n[pgbouncer]\npool_mode=%s\nlisten_addr=%s\nlisten_port=%d\nunix_socket_dir=%s\n"+
			"auth_type=hba\nauth_file=%s\nauth_hba_file=%s\nadmin_users=%s\n%s\n",
			s.Socket, s.Port, mode, b.Host, b.Port, b.Socket, file("users"), file("hba"), s.User, strings.Join(options, "\n")),
	} {
		if err := os.WriteFile(file(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bouncer) start() error {
	path, err := lookUp("pgbouncer")
	if err != nil {
		return err
	}
	return b.Process.Start(path, []string{filepath.Join(b.Dir, "ini")}, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), server.Patience)
		defer cancel()
		_, err := postgresQuery(ctx, b.Socket, b.Port, "golock", "pgbouncer", "SHOW VERSION")
		return err == nil
	})
}

// Restart ends it, which closes all connections, and starts it again at the same place.
func (b *Bouncer) Restart(t testing.TB) {
	t.Helper()
	b.End(syscall.SIGTERM)
	testkit.Must(t, b.start())
}

// URL returns the URL of a store behind the pooler, over the pooler's unix socket.
func (b *Bouncer) URL(database string, options ...string) string {
	return server.WithOptions(socketURL(&b.Process, "golock", database), options)
}
