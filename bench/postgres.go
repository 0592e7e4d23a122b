package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed testdata/advisory.go
var advisoryGo []byte

// postgreSQL is the server behind postgres:// URLs.
type postgreSQL struct{}

func (postgreSQL) title() string  { return "PostgreSQL" }
func (postgreSQL) scheme() string { return "postgres" }
func (postgreSQL) owner() string  { return "postgres" }

func (postgreSQL) find(b *bench) error {
	for _, name := range []string{"postgres", "initdb"} {
		path, err := program(name, "/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin")
		if err != nil {
			return err
		}
		b.tools[name] = &tool{name: name, path: path, version: firstLine(path, "--version")}
	}
	client := &tool{name: "pg_advisory_lock", path: filepath.Join(b.dir, "advisory"), version: "pg_advisory_lock with pgconn"}
	b.tools["advisory"] = client
	return b.buildGo(client.path, advisoryGo)
}

// create implements sqlKind. By TCP a password is wanted, the way the package
// sets it up.
func (postgreSQL) create(d *database) error {
	initdb := d.command(d.b.tools["initdb"].path, "-D", d.path("data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", initdb, err, out)
	}
	return os.WriteFile(d.path("data/pg_hba.conf"), []byte("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"), 0o600)
}

func (k postgreSQL) serve(d *database) []string {
	argv := []string{
		d.b.tools["postgres"].path, "-D", d.path("data"), "-k", k.socket(d),
		"-c", "listen_addresses=127.0.0.1", "-c", "port=" + d.port(),
	}
	if d.logged {
		argv = append(argv, "-c", "log_statement=all", "-c", "log_connections=on", "-c", "logging_collector=on",
			"-c", "log_directory="+d.home, "-c", "log_filename=log", "-c", "log_line_prefix=%u ")
	}
	return argv
}

func (postgreSQL) socket(d *database) string { return d.home }

func (postgreSQL) userAndDatabase() []string {
	return []string{
		fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", sqlUser, sqlPassword),
		fmt.Sprintf("CREATE DATABASE %s OWNER %s", sqlDatabase, sqlUser),
	}
}

func (k postgreSQL) session(d *database) *tool {
	t := *d.b.tools["advisory"]
	t.argv = func(l lock, command ...string) []string {
		return append([]string{t.path, fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", sqlUser, sqlPassword, d.address, sqlDatabase), l.name}, command...)
	}
	t.waiting = func(lock) (int, error) {
		return d.number("SELECT count(*) FROM pg_locks WHERE locktype='advisory' AND NOT granted")
	}
	return &t
}

func (k postgreSQL) sessions() []func(d *database) *tool { return []func(*database) *tool{k.session} }

func (postgreSQL) sessionNote() string {
	return "pg_advisory_lock: a client made at home that connects with pgconn, locks, runs the command and unlocks; " +
		"a connection for everyone who waits, no guard: when the session is lost the next one starts beside the command"
}

// size implements sqlKind.
func (postgreSQL) size(d *database) (float64, error) {
	n, err := d.number("SELECT pg_total_relation_size('golock') / 1024")
	return float64(n), err
}

// work implements sqlKind. What was asked is counted in the log, if there is
// one; the server's own counter is late by seconds.
func (postgreSQL) work(d *database) (w work, err error) {
	if w.cpu, err = cpuOf(d.pid); err != nil {
		return w, err
	}
	if !d.logged {
		w.connections, err = d.number("SELECT sessions FROM pg_stat_database WHERE datname='" + sqlDatabase + "'")
		return w, err
	}
	log, err := os.Open(d.path("log"))
	if err != nil {
		return w, err
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		user, text, _ := strings.Cut(lines.Text(), " ")
		text = strings.TrimPrefix(text, "LOG:  ")
		switch {
		case user != sqlUser:
		case strings.HasPrefix(text, "connection authorized"):
			w.connections++
		case strings.HasPrefix(text, "statement: BEGIN"):
			w.transactions++
			w.statements++
		case strings.HasPrefix(text, "statement: "), strings.HasPrefix(text, "execute "):
			w.statements++
		}
	}
	return w, lines.Err()
}

// postgresClient is a connection of the administrator's.
type postgresClient struct{ conn *pgconn.PgConn }

func (k postgreSQL) connect(d *database, name string) (sqlClient, error) {
	if name == "" {
		name = "postgres"
	}
	conn, err := pgconn.Connect(context.Background(), fmt.Sprintf("host=%s port=%s user=postgres dbname=%s sslmode=disable", k.socket(d), d.port(), name))
	if err != nil {
		return nil, err
	}
	return &postgresClient{conn}, nil
}

func (c *postgresClient) close() { _ = c.conn.Close(context.Background()) }

func (c *postgresClient) ask(statement string) ([][]string, error) {
	results, err := c.conn.Exec(context.Background(), statement).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) != 1 {
		return nil, errors.New("not one statement")
	}
	var rows [][]string
	for _, values := range results[0].Rows {
		var row []string
		for _, v := range values {
			row = append(row, string(v))
		}
		rows = append(rows, row)
	}
	return rows, nil
}
