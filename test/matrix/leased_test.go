// The same tables hold on a leased store, where a guard stands between golock
// and the command. GOLOCK_TEST_STORE=redis runs them there; what is about lock
// files and inherited locks is left out.

package matrix_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const storeVariable = "GOLOCK_TEST_STORE"

// server is the socket of a Redis server, or "" if the tests are about local
// stores.
var server string

// startServer starts a Redis server if one is asked for. stop ends it.
func startServer(dir string) (stop func(), err error) {
	switch what := os.Getenv(storeVariable); what {
	case "", "local":
		return func() {}, nil
	case "redis":
	default:
		return nil, fmt.Errorf("%s=%s: want local or redis", storeVariable, what)
	}
	server = filepath.Join(dir, "redis.sock")
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", server, "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting redis-server (Debian: apt-get install redis-server): %w", err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if !within(limit, func() bool {
		c, err := net.DialTimeout("unix", server, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		stop()
		return nil, fmt.Errorf("redis-server does not answer at %s", server)
	}
	return stop, nil
}

// storeIn is the URL of a store that nobody else uses.
func storeIn(dir, world string) string {
	if os.Getenv(storeVariable) == "redis" { // read here too: go test remembers what a test read, not what TestMain did
		return "redis+unix://" + server + "?prefix=" + world + "&quarantine=0s"
	}
	return "local://" + filepath.Join(dir, "store")
}

// usedServer reports whether there is a key of this store.
func usedServer(store string) bool {
	_, prefix, _ := strings.Cut(store, "?prefix=")
	prefix, _, _ = strings.Cut(prefix, "&")
	c, err := net.Dial("unix", server)
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
		return server != "" && (slices.Contains(f, "--exec") || slices.Contains(f, "--close") || slices.Contains(f, "-o"))
	})
}

// golockOf is the golock that runs a command.
func golockOf(command int) int {
	parent := stat(command).parent
	if server != "" {
		parent = stat(parent).parent // past the guard
	}
	return parent
}
