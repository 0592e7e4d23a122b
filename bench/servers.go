package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golock/locks/locktest/server"
	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
)

// servers are the servers that this run uses, on loopback. Each is started when it
// is first needed.
type servers struct {
	owner           owner
	redis           *redistest.Server
	maria, postgres *sqltest.Server
	mariaDB, pgDB   string
	etcd            *exec.Cmd
	etcdURL         string
}

// owner stands in for a test, because the packages that start servers need one.
type owner struct {
	testing.TB
	cleanups []func()
}

func (o *owner) Helper()                   {}
func (o *owner) Cleanup(f func())          { o.cleanups = append(o.cleanups, f) }
func (o *owner) Fatal(args ...any)         { must(errors.New(fmt.Sprint(args...))) }
func (o *owner) Fatalf(f string, a ...any) { must(fmt.Errorf(f, a...)) }

func (s *servers) close() {
	for _, f := range s.owner.cleanups {
		f()
	}
	server.Close()
}

// address returns the address of a server. key is "KIND FORM". It starts the server if
// that does not run.
func (s *servers) address(b *bench, key string) string {
	const noQuarantine = "quarantine=0" // the servers are young: they have forgotten nothing
	kind, form, _ := strings.Cut(key, " ")
	switch {
	case kind == "redis" && s.redis == nil:
		s.redis = redistest.Start(&s.owner)
	case kind == "maria" && s.maria == nil:
		s.maria = sqltest.StartMaria(&s.owner, "max-connections=4000", "innodb-flush-method=O_DIRECT", "innodb-log-file-size=96M", "innodb-buffer-pool-size=128M")
		s.mariaDB = s.maria.NewDatabase(&s.owner)
	case kind == "postgres" && s.postgres == nil:
		s.postgres = sqltest.StartPostgres(&s.owner, "max_connections=4000", "shared_buffers=128MB")
		s.pgDB = s.postgres.NewDatabase(&s.owner)
	case kind == "etcd" && s.etcd == nil:
		s.startEtcd(b)
	}
	switch kind + " " + form {
	case "redis url":
		return s.redis.URL(noQuarantine)
	case "redis address":
		return s.redis.Addr()
	case "maria url":
		return s.maria.TCPURL(s.mariaDB, noQuarantine)
	case "maria dsn":
		return fmt.Sprintf("golock:%s@tcp(%s)/%s", sqltest.Password, s.maria.Addr(), s.mariaDB)
	case "postgres url":
		return s.postgres.TCPURL(s.pgDB, noQuarantine)
	case "postgres bare url":
		return s.postgres.TCPURL(s.pgDB)
	case "etcd url":
		return s.etcdURL
	case "etcd store":
		return strings.Replace(s.etcdURL, "http://", "etcd://", 1)
	}
	panic("no address {" + key + "}")
}

// startEtcd starts one of a single node.
func (s *servers) startEtcd(b *bench) {
	at := func() string { return fmt.Sprintf("http://127.0.0.1:%d", redistest.FreePort(&s.owner)) }
	clients, peers := at(), at()
	s.etcdURL = clients
	s.etcd = exec.Command("etcd", "--data-dir", filepath.Join(b.dir, "etcd"), "--name", "one",
		"--logger", "zap", "--log-level", "error", "--listen-client-urls", clients,
		"--advertise-client-urls", clients, "--listen-peer-urls", peers,
		"--initial-advertise-peer-urls", peers, "--initial-cluster", "one="+peers)
	s.etcd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	must(s.etcd.Start())
	s.owner.Cleanup(func() {
		_ = s.etcd.Process.Kill()
		_ = s.etcd.Wait()
	})
	b.until("etcd answers", 5*time.Millisecond, func() (bool, error) {
		_, err := s.etcdKeys("")
		return err == nil, err
	})
}

// etcdKeys counts those that begin with a prefix.
func (s *servers) etcdKeys(prefix string) (int, error) {
	ask := exec.Command("etcdctl", "--endpoints", s.etcdURL, "get", "--prefix", "--keys-only", prefix)
	out, err := ask.Output()
	return strings.Count(string(out), prefix+"/"), err
}

// waiting counts those who wait with a tool that is not golock.
func (s *servers) waiting(tool string, l lock) (int, error) {
	server := s.maria
	statement := "SELECT count(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User lock'"
	switch tool {
	case "SET NX, polling": // all clients that have asked, without the holder
		list, err := s.redis.Try("CLIENT", "LIST")
		return strings.Count(fmt.Sprint(list), " cmd=set ") - 1, err
	case "etcdctl lock", "etcd Lock": // the holder has a key too
		n, err := s.etcdKeys(l.name)
		return n - 1, err
	case "pg_advisory_lock":
		server = s.postgres
		statement = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
	}
	rows, err := server.TryExec("", statement)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(rows[0][0])
}

// endpoint is where a wire to the server of a tool ends, and what the tool's command line calls
// the server. PostgreSQL asks for no password on its socket.
func (s *servers) endpoint(tool string) (network, address, reached string) {
	switch {
	case strings.Contains(tool, "SCRAM"):
		return "tcp", s.postgres.Addr(), s.postgres.Addr()
	case strings.Contains(tool, "postgres") || strings.HasPrefix(tool, "pg_"):
		socket := fmt.Sprintf("%s/.s.PGSQL.%d", s.postgres.Socket, s.postgres.Port)
		return "unix", socket, s.postgres.Addr()
	case strings.Contains(tool, "mysql") || tool == "GET_LOCK":
		return "tcp", s.maria.Addr(), s.maria.Addr()
	case strings.Contains(tool, "redis") || strings.HasPrefix(tool, "SET NX"):
		return "tcp", s.redis.Addr(), s.redis.Addr()
	case strings.Contains(tool, "etcd"):
		at := strings.TrimPrefix(s.etcdURL, "http://")
		return "tcp", at, at
	}
	panic("no server of " + tool)
}

// pidOf gives the server of a tool, nil if it has none.
func (s *servers) pidOf(tool string) func() (int, error) {
	tool, _, _ = strings.Cut(tool, ", waiters=")
	switch tool {
	case "golock redis", "SET NX, polling":
		return func() (int, error) { return strconv.Atoi(s.redis.Info("server", "process_id")) }
	case "golock mysql", "GET_LOCK":
		return func() (int, error) { return readPID(filepath.Join(s.maria.Dir, "pid")) }
	case "golock etcd", "etcdctl lock", "etcd Lock":
		return func() (int, error) { return s.etcd.Process.Pid, nil }
	case "golock postgres", "pg_advisory_lock":
		file := filepath.Join(s.postgres.Dir, "data", "postmaster.pid")
		return func() (int, error) { return readPID(file) }
	}
	return nil
}

func readPID(path string) (int, error) {
	data, err := os.ReadFile(path)
	line, _, _ := strings.Cut(string(data), "\n")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line))
}
