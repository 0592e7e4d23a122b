// The same tables hold on a leased store, where a guard stands between golock
// and the command. GOLOCK_TEST_STORE=redis, mariadb or postgres runs them there;
// what is about lock files and inherited locks is left out.

package matrix_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golock/locks/sql/sqltest"
)

const storeVariable = "GOLOCK_TEST_STORE"

// storeKind is local, redis, mariadb or postgres. Each test asks for itself: go
// test remembers what a test read, not what TestMain did.
func storeKind() string {
	if kind := os.Getenv(storeVariable); kind != "" {
		return kind
	}
	return "local"
}

func leased() bool { return storeKind() != "local" }

// shortWait is a --wait that is soon over. A server has to be reached in it.
func shortWait() string {
	if leased() {
		return "1"
	}
	return "0.1"
}

// redisSocket is that of the Redis server, if there is one.
var redisSocket string

// startRedis starts a server if one is asked for. stop ends it.
func startRedis(dir string) (stop func(), err error) {
	switch kind := storeKind(); kind {
	case "local", "mariadb", "postgres":
		return func() {}, nil
	case "redis":
	default:
		return nil, fmt.Errorf("%s=%s: want local, redis, mariadb or postgres", storeVariable, kind)
	}
	redisSocket = filepath.Join(dir, "redis.sock")
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", redisSocket, "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting redis-server (Debian: apt-get install redis-server): %w", err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if !within(limit, func() bool {
		c, err := net.DialTimeout("unix", redisSocket, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		stop()
		return nil, fmt.Errorf("redis-server does not answer at %s", redisSocket)
	}
	return stop, nil
}

// database is where all worlds have their tables, if their stores are in one.
var database struct {
	sync.Mutex
	server *sqltest.Server
	name   string
}

func sqlServer(t testing.TB) (server *sqltest.Server, name string) {
	t.Helper()
	d := &database
	d.Lock()
	defer d.Unlock()
	if d.server == nil {
		if d.server = sqltest.Maria(t); storeKind() == "postgres" {
			d.server = sqltest.Postgres(t)
		}
		d.name = d.server.NewDatabase(t)
	}
	return d.server, d.name
}

func tableOf(world string) string { return "world" + strings.ReplaceAll(world, ".", "_") }

// storeIn is the URL of a store that nobody else uses.
func storeIn(t testing.TB, dir, world string) string {
	t.Helper()
	switch storeKind() {
	case "redis":
		return "redis+unix://" + redisSocket + "?prefix=" + world + "&quarantine=0s"
	case "mariadb", "postgres":
		server, name := sqlServer(t)
		url := server.URL(name, "table="+tableOf(world), "quarantine=0s")
		return strings.Replace(url, "@localhost/", "@localhost:3306/", 1) // as golock shows it
	}
	return "local://" + filepath.Join(dir, "store")
}

// used reports whether golock has left something in the store.
func (w *world) used() bool {
	w.t.Helper()
	_, number, _ := strings.Cut(w.mark, "=")
	switch {
	case strings.HasPrefix(w.store, "local://"):
		found := false
		filepath.WalkDir(strings.TrimPrefix(w.store, "local://"), func(_ string, d os.DirEntry, _ error) error {
			found = found || d != nil && !d.IsDir()
			return nil
		})
		return found
	case storeKind() == "redis":
		return hasKeys(number)
	}
	server, name := sqlServer(w.t)
	_, err := server.TryExec(name, "SELECT 1 FROM "+tableOf(number))
	return err == nil
}

// hasKeys reports whether the Redis server has keys with this prefix.
func hasKeys(prefix string) bool {
	c, err := net.Dial("unix", redisSocket)
	if err != nil {
		return false
	}
	defer c.Close()
	answer := make([]byte, 64)
	_, err = fmt.Fprintf(c, "KEYS %s:*\r\n", prefix)
	if err == nil {
		_, err = c.Read(answer)
	}
	return err == nil && !strings.HasPrefix(string(answer), "*0")
}

// newLocalWorld is for what only a local store has, whatever store the others
// are on.
func newLocalWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.store = "local://" + filepath.Join(filepath.Dir(w.dir), "store")
	return w
}

// supported takes out what a leased store refuses.
func supported(flags [][]string) [][]string {
	return slices.DeleteFunc(flags, func(f []string) bool {
		return leased() && (slices.Contains(f, "--exec") || slices.Contains(f, "--close") || slices.Contains(f, "-o"))
	})
}

// golockOf is the golock that runs a command.
func golockOf(command int) int {
	parent := stat(command).parent
	if leased() {
		parent = stat(parent).parent // past the guard
	}
	return parent
}
