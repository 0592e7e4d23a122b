package open_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/open"
	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
)

// The stores that keep a queue, each with a place that nobody has used.
func queues(t *testing.T) map[string]func(t *testing.T) string {
	var n atomic.Int64
	next := func() string { return strconv.FormatInt(n.Add(1), 10) }
	redis := redistest.Start(t)
	maria, postgres := sqltest.StartMaria(t), sqltest.StartPostgres(t)
	directory := func(t *testing.T) string {
		dir := t.TempDir() + "/" + next()
		must(t, os.Mkdir(dir, 0o700))
		return dir
	}
	all := map[string]func(t *testing.T) string{
		"local":    func(t *testing.T) string { return "local://" + directory(t) },
		"redis":    func(*testing.T) string { return redis.SocketURL("quarantine=0", "prefix=store"+next()) },
		"mariadb":  func(t *testing.T) string { return maria.URL(maria.NewDatabase(t), "quarantine=0") },
		"postgres": func(t *testing.T) string { return postgres.URL(postgres.NewDatabase(t), "quarantine=0") },
	}
	return all
}

// One sequence of requests has the same outcome in every store that keeps a
// queue: what is learnt with one is true of the others. Lease files have no part
// in it: what others do in one step takes them several, and a sequence that goes
// on meanwhile sees that. The concurrent histories judge them.
func TestStoresAreAlike(t *testing.T) {
	span, seed := 3*time.Second, rand.Uint64()
	if text := os.Getenv("GOLOCK_TEST_HISTORIES"); text != "" {
		var err error
		span, err = time.ParseDuration(text)
		must(t, err)
	}
	if text := os.Getenv("GOLOCK_TEST_HISTORIES_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	stores := queues(t)
	steps, began := 0, time.Now()
	for rounds := 0; rounds == 0 || time.Since(began) < span; rounds++ {
		texts := map[string][]string{}
		for name, fresh := range stores {
			texts[name] = nil
			t.Run(fmt.Sprintf("%s %d", name, seed), func(t *testing.T) {
				texts[name] = locktest.Alike(t, locktest.Engine{
					Fresh: fresh,
					Open:  func(url string) (locks.Store, error) { return open.Store(url) },
				}, seed)
			})
		}
		for name, text := range texts {
			if slices.Equal(text, texts["local"]) {
				continue
			}
			i := 0
			for i < min(len(text), len(texts["local"])) && text[i] == texts["local"][i] {
				i++
			}
			until := func(lines []string) string { return strings.Join(lines[:min(i+2, len(lines))], "\n  ") }
			t.Errorf("GOLOCK_TEST_HISTORIES_SEED=%d: %s\n  %s\nand local\n  %s", seed, name, until(text), until(texts["local"]))
		}
		if t.Failed() {
			return
		}
		steps += len(texts["local"])
		seed++
	}
	t.Logf("%d lines alike in %d stores", steps, len(stores))
}
