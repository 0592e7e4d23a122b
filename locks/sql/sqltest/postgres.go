package sqltest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

type postgresProgram struct{}

func postgres() kind {
	return kind{
		name: "postgres", account: "postgres", program: postgresProgram{},
		stop: syscall.SIGINT, // does not wait for the clients
		connections: "SELECT pid, coalesce(datname, ''), query FROM pg_stat_activity" +
			" WHERE usename = 'golock' AND backend_type = 'client backend' ORDER BY backend_start",
		kill: "SELECT pg_terminate_backend(%s)",
	}
}

// postgresDirs is where Debian keeps the programs of each version.
const postgresDirs = "/usr/lib/postgresql/*/bin"

// postgresAccounts is for all databases: until version 14 everybody could make
// tables.
const postgresAccounts = "CREATE ROLE golock LOGIN PASSWORD '" + Password + "';\nREVOKE CREATE ON SCHEMA public FROM PUBLIC;\n"

func (postgresProgram) initialize(data string, a *syscall.Credential) error {
	initdb, err := lookUp("initdb", postgresDirs)
	if err != nil {
		return err
	}
	program, err := lookUp("postgres", postgresDirs)
	if err != nil {
		return err
	}
	dir := filepath.Dir(data)
	// It is copied before it is used: nothing is lost if the machine stops.
	if err := run(a, dir, "", initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1"); err != nil {
		return err
	}
	return run(a, dir, postgresAccounts, program, "--single", "-D", data, "-F", "template1")
}

func (postgresProgram) settle(s *Server) error {
	s.Socket = s.Dir
	rules := "local all all trust\nlocal replication all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
	if s.Certificate != "" {
		rules = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n"
	}
	return os.WriteFile(filepath.Join(s.Dir, "hba.conf"), []byte(rules), 0o644)
}

func (postgresProgram) command(s *Server) (path string, args []string, err error) {
	if path, err = lookUp("postgres", postgresDirs); err != nil {
		return "", nil, err
	}
	options := []string{
		"port=" + strconv.Itoa(s.Port), "listen_addresses=" + s.Host, "unix_socket_directories=" + s.Socket,
		"hba_file=" + filepath.Join(s.Dir, "hba.conf"), "shared_buffers=16MB", "fsync=on", "synchronous_commit=on",
		"dynamic_shared_memory_type=mmap", // the memory is a file of the directory: a killed server leaves nothing in /dev/shm
		// With the hundreds of databases of a run it would start a process every tenth of a second.
		"autovacuum=off",
	}
	if s.Certificate != "" {
		options = append(options, "ssl=on", "ssl_ca_file="+s.Certificate, "ssl_cert_file="+s.Certificate, "ssl_key_file="+s.Key)
	}
	args = []string{"-D", s.data()}
	for _, o := range append(options, s.options...) {
		args = append(args, "-c", o)
	}
	return path, args, nil
}

func (postgresProgram) query(ctx context.Context, s *Server, database, text string) ([][]string, error) {
	if database == "" {
		database = "postgres"
	}
	return postgresQuery(ctx, s.Socket, s.Port, "postgres", database, text)
}

func postgresQuery(ctx context.Context, host string, port int, user, database, text string) ([][]string, error) {
	c, err := pgconn.Connect(ctx, fmt.Sprintf("host=%s port=%d user=%s database=%s sslmode=disable", host, port, user, database))
	if err != nil {
		return nil, err
	}
	defer c.Close(ctx)
	results, err := c.Exec(ctx, text).ReadAll()
	var all [][]string
	for _, result := range results {
		for _, values := range result.Rows {
			row := make([]string, len(values))
			for i, v := range values {
				row[i] = string(v)
			}
			all = append(all, row)
		}
	}
	return all, err
}

func (postgresProgram) newDatabase(_ *Server, name string) string {
	return "CREATE DATABASE " + name + " OWNER golock"
}

func (postgresProgram) newUser(s *Server, u *User, rights string) error {
	text := fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s';", u.Name, Password)
	if rights != "" {
		text += fmt.Sprintf("GRANT %[2]s ON ALL TABLES IN SCHEMA public TO %[1]s;"+
			"ALTER DEFAULT PRIVILEGES FOR ROLE golock IN SCHEMA public GRANT %[2]s ON TABLES TO %[1]s", u.Name, rights)
	}
	_, err := s.TryExec(u.Database, text)
	return err
}

func (postgresProgram) url(s *Server, user, database string) string {
	return socketURL(&s.Process, user, database)
}

func socketURL(p *server.Process, user, database string) string {
	return fmt.Sprintf("postgres://%s@localhost:%d/%s?socket=%s", user, p.Port, database, p.Socket)
}

// StartStandby starts a program that takes the log of a server and confirms what it has of it, as a
// standby does, and waits until it is connected.
func StartStandby(t testing.TB, s *Server) *server.Process {
	t.Helper()
	path, err := lookUp("pg_receivewal", postgresDirs)
	testkit.Must(t, err)
	p := &server.Process{Dir: t.TempDir()}
	t.Cleanup(p.Kill)
	args := []string{"-D", p.Dir, "-h", s.Socket, "-p", strconv.Itoa(s.Port), "-U", "postgres", "--synchronous", "--no-loop"}
	testkit.Must(t, p.Start(path, args, func() bool {
		rows, err := s.TryExec("", "SELECT count(*) FROM pg_stat_replication WHERE state='streaming'")
		return err == nil && rows[0][0] == "1"
	}))
	return p
}

// tidy removes the shared memory segment by which a postgres knows that it is
// alone in a directory: a killed one leaves it. The file's seventh line is its
// key and its ID.
func (postgresProgram) tidy(s *Server) {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return // it has stopped
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return
	}
	if fields := strings.Fields(lines[6]); len(fields) == 2 {
		if id, err := strconv.Atoi(fields[1]); err == nil {
			_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
	}
}
