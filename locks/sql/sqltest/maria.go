package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/go-sql-driver/mysql"
)

type mariaProgram struct{}

func maria() kind {
	return kind{
		name: "mariadb", account: "mysql", stop: syscall.SIGTERM, program: mariaProgram{},
		connections: "SELECT ID, IFNULL(DB, ''), IFNULL(INFO, '') FROM information_schema.PROCESSLIST" +
			" WHERE USER = 'golock' ORDER BY ID",
		kill: "KILL %s",
	}
}

// mariaAccounts leaves root on the socket only. golock is the same account from
// everywhere: MariaDB shows an account no others' connections.
const mariaAccounts = `
FLUSH PRIVILEGES;
DELETE FROM mysql.global_priv WHERE User <> 'root' AND User <> 'mariadb.sys' OR Host <> 'localhost';
FLUSH PRIVILEGES;
CREATE USER golock@'%' IDENTIFIED BY '` + Password + `';
`

const mysqlAccounts = "CREATE USER golock@'%' IDENTIFIED BY '" + Password + "';\n"

// mysqld is a variable with the path of a MySQL server, which is run instead of MariaDB.
const mysqld = "LOCKTEST_MYSQLD"

// MySQL reports whether the servers are MySQL's own.
func MySQL() bool { return os.Getenv(mysqld) != "" }

func (mariaProgram) initialize(data string, a *syscall.Credential) error {
	dir := filepath.Dir(data)
	file := filepath.Join(dir, "accounts.sql")
	if path := os.Getenv(mysqld); path != "" {
		if err := os.WriteFile(file, []byte(mysqlAccounts), 0o644); err != nil {
			return err
		}
		return run(a, dir, "", path, "--no-defaults", "--initialize-insecure", "--auto-generate-certs=off", "--datadir="+data, "--tmpdir="+dir, "--init-file="+file)
	}
	path, err := lookUp("mariadb-install-db")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(mariaAccounts), 0o644); err != nil {
		return err
	}
	return run(a, dir, "", path, "--no-defaults", "--datadir="+data, "--tmpdir="+dir, "--loose-innodb-log-file-size=8M", "--skip-name-resolve",
		"--auth-root-authentication-method=normal", "--skip-test-db", "--extra-file="+file)
}

func (mariaProgram) settle(s *Server) error {
	s.Socket = filepath.Join(s.Dir, "socket")
	return nil
}

func (mariaProgram) command(s *Server) (path string, args []string, err error) {
	if path = os.Getenv(mysqld); path == "" {
		if path, err = lookUp("mariadbd"); err != nil {
			return "", nil, err
		}
	}
	args = []string{
		"--no-defaults", "--datadir=" + s.data(), "--socket=" + s.Socket, "--pid-file=" + filepath.Join(s.Dir, "pid"), "--tmpdir=" + s.Dir,
		"--bind-address=" + s.Host, "--port=" + strconv.Itoa(s.Port), "--skip-name-resolve",
		"--innodb-flush-log-at-trx-commit=1", "--loose-innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M",
		"--innodb-flush-method=nosync", // outlives kill -9; a busy disk delays no commit by seconds
	}
	switch { // newer servers have TLS without being asked
	case s.Certificate != "":
		args = append(args, "--ssl-ca="+s.Certificate, "--ssl-cert="+s.Certificate, "--ssl-key="+s.Key, "--require-secure-transport=on")
	case MySQL():
		args = append(args, "--auto-generate-certs=off")
	default:
		args = append(args, "--skip-ssl")
	}
	for _, o := range s.options {
		args = append(args, "--"+o)
	}
	return path, args, nil
}

func (mariaProgram) query(ctx context.Context, s *Server, database, text string) ([][]string, error) {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "unix", s.Socket, database
	c.MultiStatements, c.Logger = true, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	rows, err := db.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all [][]string
	for more := true; more; more = rows.NextResultSet() {
		columns, err := rows.Columns()
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			values, places := make([]sql.NullString, len(columns)), make([]any, len(columns))
			for i := range values {
				places[i] = &values[i]
			}
			if err := rows.Scan(places...); err != nil {
				return nil, err
			}
			row := make([]string, len(columns))
			for i, v := range values {
				row[i] = v.String
			}
			all = append(all, row)
		}
	}
	return all, rows.Err()
}

func (mariaProgram) newDatabase(s *Server, name string) string {
	require := ""
	if s.Certificate != "" {
		require = "; ALTER USER golock@'%' REQUIRE X509"
	}
	return fmt.Sprintf("CREATE DATABASE %[1]s; GRANT ALL ON %[1]s.* TO golock@'%%'", name) + require
}

func (mariaProgram) newUser(s *Server, u *User, rights string) error {
	if rights == "" {
		rights = "USAGE"
	}
	_, err := s.TryExec("", fmt.Sprintf("CREATE USER %[1]s@localhost IDENTIFIED BY '%[2]s', %[1]s@'127.0.0.1' IDENTIFIED BY '%[2]s'; GRANT %[3]s ON %[4]s.* TO %[1]s@localhost, %[1]s@'127.0.0.1'",
		u.Name, Password, rights, u.Database))
	return err
}

func (mariaProgram) url(s *Server, user, database string) string {
	return fmt.Sprintf("mariadb://%s:%s@localhost/%s?socket=%s", user, Password, database, s.Socket)
}

func (mariaProgram) tidy(*Server) {}

// lookUp finds a program where Debian puts it, too: a user's PATH may lack
// /usr/sbin, and /usr/lib/postgresql is in none.
func lookUp(name string, dirs ...string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range append(dirs, "/usr/sbin") {
		files, _ := filepath.Glob(filepath.Join(dir, name))
		if len(files) > 0 {
			return files[len(files)-1], nil
		}
	}
	return "", fmt.Errorf("%s is not installed: run .ci/deps", name)
}
