package open_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golock/locks/locktest"
	"golock/locks/open"
	"golock/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Library(m)) }

// freePort finds five ports in a row that nobody has, among those that no other
// test uses (locks/locktest/server).
func freePort(t testing.TB, address string) int {
	t.Helper()
	for range 200 {
		first := 17000 + rand.IntN(1990)
		free := true
		for port := first; port < first+5 && free; port++ {
			s, err := open.Store(fmt.Sprintf("bind://%s:%d", address, port))
			testkit.Must(t, err)
			l, err := locktest.TryPlain(t, s, 1)
			if free = err == nil; free {
				locktest.Release(t, l)
			}
		}
		if free {
			return first
		}
	}
	t.Fatal("no free ports")
	return 0
}

// kinds gives a URL that nobody has used before, of each kind of plain store.
func kinds() map[string]func(t testing.TB) string {
	return map[string]func(t testing.TB) string{
		"flock": func(t testing.TB) string { return "flock://" + filepath.Join(t.TempDir(), "lock") },
		"fcntl": func(t testing.TB) string { return "fcntl://" + filepath.Join(t.TempDir(), "lock") },
		"port":  func(t testing.TB) string { return fmt.Sprintf("bind://127.0.0.1:%d", freePort(t, "127.0.0.1")) },
		"port6": func(t testing.TB) string { return fmt.Sprintf("bind://[::1]:%d", freePort(t, "[::1]")) },
		// The path of a socket must be short.
		"socket":   func(t testing.TB) string { return "bind://" + filepath.Join(testkit.Place(t, 0o700), "sock") },
		"abstract": func(testing.TB) string { return fmt.Sprintf("bind://@golock-test-%d-%x", os.Getpid(), rand.Uint64()) },
	}
}
