package main

import (
	"context"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sys/unix"
)

//go:embed testdata/getlock.go
var getLockGo []byte

// mariaDB is the server behind mysql:// and mariadb:// URLs.
type mariaDB struct{}

func (mariaDB) title() string  { return "MariaDB" }
func (mariaDB) scheme() string { return "mysql" }
func (mariaDB) owner() string  { return "mysql" }

func (mariaDB) find(b *bench) error {
	for _, name := range []string{"mariadbd", "mariadb-install-db"} {
		path, err := program(name, "/usr/sbin", "/usr/libexec")
		if err != nil {
			return err
		}
		b.tools[name] = &tool{name: name, path: path, version: firstLine(path, "--version")}
	}
	client := &tool{name: "GET_LOCK", path: filepath.Join(b.dir, "getlock"), version: "GET_LOCK and RELEASE_LOCK with database/sql"}
	b.tools["getlock"] = client
	return b.buildGo(client.path, getLockGo)
}

// create implements sqlKind. The package's administrator has no password and
// comes by the socket.
func (mariaDB) create(d *database) error {
	install := d.command(d.b.tools["mariadb-install-db"].path, "--no-defaults", "--datadir="+d.path("data"),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", install, err, out)
	}
	return nil
}

func (k mariaDB) serve(d *database) []string {
	return []string{
		d.b.tools["mariadbd"].path, "--no-defaults", "--datadir=" + d.path("data"), "--tmpdir=" + d.home,
		"--bind-address=127.0.0.1", "--port=" + d.port(), "--socket=" + k.socket(d), "--pid-file=" + d.path("pid"),
	}
}

func (mariaDB) socket(d *database) string { return d.path("socket") }

func (mariaDB) userAndDatabase() []string {
	var statements []string
	for _, host := range []string{"127.0.0.1", "localhost"} { // by TCP, by the socket
		statements = append(statements, fmt.Sprintf("CREATE USER '%s'@'%s' IDENTIFIED BY '%s'", sqlUser, host, sqlPassword),
			fmt.Sprintf("GRANT ALL ON %s.* TO '%s'@'%s'", sqlDatabase, sqlUser, host))
	}
	return append(statements, "CREATE DATABASE "+sqlDatabase)
}

func (k mariaDB) session(d *database) *tool {
	t := *d.b.tools["getlock"]
	t.argv = func(l lock, command ...string) []string {
		return append([]string{t.path, fmt.Sprintf("%s:%s@tcp(%s)/%s", sqlUser, sqlPassword, d.address, sqlDatabase), l.name}, command...)
	}
	t.waiting = func(lock) (int, error) {
		return d.number("SELECT count(*) FROM information_schema.PROCESSLIST WHERE STATE='User lock'")
	}
	return &t
}

func (k mariaDB) sessions() []func(d *database) *tool {
	return []func(*database) *tool{k.session, k.polling}
}

// polling is the same client, which does not let the server wait but asks ten
// times a second.
func (k mariaDB) polling(d *database) *tool {
	t := *k.session(d)
	t.name += ", polling"
	argv := t.argv
	t.argv = func(l lock, command ...string) []string {
		args := argv(l, command...)
		return append([]string{args[0], "-poll"}, args[1:]...)
	}
	t.waiting = func(lock) (int, error) { // all but the holder
		n, err := d.number("SELECT count(*) FROM information_schema.PROCESSLIST WHERE USER='" + sqlUser + "'")
		return n - 1, err
	}
	return &t
}

func (mariaDB) sessionNote() string {
	return "GET_LOCK: a client made at home that connects with database/sql, calls GET_LOCK, runs the command and calls RELEASE_LOCK; " +
		"a connection for everyone who waits, no guard: when the session is lost the next one starts beside the command"
}

// size implements sqlKind: the file, as the server's own figures come late.
func (mariaDB) size(d *database) (float64, error) {
	var st unix.Stat_t
	if err := unix.Stat(d.path("data/"+sqlDatabase+"/golock.ibd"), &st); err != nil {
		return 0, fmt.Errorf("the table's file: %w", err)
	}
	return float64(st.Size) / 1024, nil
}

// work implements sqlKind. The server counts all by itself.
func (mariaDB) work(d *database) (w work, err error) {
	rows, err := d.client.ask("SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions','Com_begin','Connections')")
	if err != nil {
		return w, err
	}
	for _, row := range rows {
		n, err := strconv.Atoi(row[1])
		if err != nil {
			return w, err
		}
		switch row[0] {
		case "Questions":
			w.statements = n - d.client.(*mariaClient).asked
		case "Com_begin":
			w.transactions = n
		case "Connections":
			w.connections = n
		}
	}
	w.cpu, err = cpuOf(d.pid)
	return w, err
}

// mariaClient is a connection of the administrator's.
type mariaClient struct {
	conn  driver.Conn
	asked int
}

func (k mariaDB) connect(d *database, name string) (sqlClient, error) {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.DBName, c.Logger = "unix", k.socket(d), "root", name, silent{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	conn, err := connector.Connect(context.Background())
	if err != nil {
		return nil, err
	}
	return &mariaClient{conn: conn}, nil
}

// silent is for the driver, which logs on standard error.
type silent struct{}

func (silent) Print(...any) {}

func (c *mariaClient) close() { _ = c.conn.Close() }

func (c *mariaClient) ask(statement string) ([][]string, error) {
	c.asked++
	answer, err := c.conn.(driver.QueryerContext).QueryContext(context.Background(), statement, nil)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	var rows [][]string
	values := make([]driver.Value, len(answer.Columns()))
	for {
		if err := answer.Next(values); errors.Is(err, io.EOF) {
			return rows, nil
		} else if err != nil {
			return nil, err
		}
		row := make([]string, len(values))
		for i, v := range values {
			if text, is := v.([]byte); is {
				row[i] = string(text)
			} else {
				row[i] = fmt.Sprint(v)
			}
		}
		rows = append(rows, row)
	}
}

// program finds one that need not be in PATH.
func program(name string, places ...string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	for _, place := range places {
		found, _ := filepath.Glob(filepath.Join(place, name))
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%s is not installed: run .ci/deps", name)
}
