//go:build integration

package hostile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// manyEntries is how many valid entries of a name work in any case.
const manyEntries = 10_000

// multiply makes copies of an entry that holds, each with an ID, a slot and a fence of its own.
func (s sqlScribe) multiply(t *testing.T, id string) {
	t.Helper()
	numbers := fmt.Sprintf("generate_series(1,%d) AS n(seq)", manyEntries)
	if s.server.Kind == "mariadb" {
		numbers = fmt.Sprintf("(SELECT seq FROM seq_1_to_%d) AS n", manyEntries)
	}
	_, entry, _ := strings.Cut(id, "-")
	same := "lock_key,state,ord,ends,due,ttl,weight,max_units,since,hold,conn,replaces,evicted,info,login,name,epoch,low,counter,seen,turn,moved,late,servers,quiet,format,made"
	s.server.Exec(t, s.database, fmt.Sprintf("INSERT INTO golock (%s,entry_id,slots,fence) SELECT %s,LPAD(CONCAT('',seq),32,'0'),CONCAT('',seq),fence FROM golock,%s WHERE entry_id='%s'",
		same, same, numbers, entry))
}

func (s redisScribe) multiply(t *testing.T, id string) {
	t.Helper()
	key, entry, _ := strings.Cut(id, "-")
	const script = `local r, at = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('ZSCORE', KEYS[2], ARGV[1])
		for i = 1, tonumber(ARGV[2]) do
			local id = string.format('%032d', i)
			redis.call('HSET', KEYS[1], id, (r:gsub('"slots":"0"', '"slots":"' .. i .. '"')))
			redis.call('ZADD', KEYS[2], at, id)
		end
		return 1`
	tag := s.prefix + ":{" + key + "}:"
	s.server.Do("EVAL", script, 2, tag+"e", tag+"h", entry, manyEntries)
}

// multiply gives some of the copies a record with more words than golock writes.
func (s fileScribe) multiply(t *testing.T, id string) {
	t.Helper()
	key, entry, _ := strings.Cut(id, "-")
	records := s.dir + "/" + key + "/data/"
	own, err := os.ReadFile(records + entry + "-0")
	testkit.Must(t, err)
	wordy := strings.Replace(string(own), `"command":[`, `"command":[`+strings.Repeat(`"",`, 19_000), 1)
	testkit.Must(t, os.WriteFile(records+"wordy", []byte(wordy), 0o666))
	path, text := s.state(t, id)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	head := strings.Fields(lines[0])
	for _, line := range lines[1:] {
		if !strings.HasPrefix(line, entry) {
			continue
		}
		for i := range manyEntries {
			copied := fmt.Sprintf("%032d", i+1)
			lines = append(lines, strings.Replace(strings.Replace(line, entry, copied, 1), " s0 ", fmt.Sprintf(" s%d ", i+1), 1))
			if i%20 == 0 {
				testkit.Must(t, os.Link(records+"wordy", records+copied+"-0"))
			}
		}
		break
	}
	head[2] = fmt.Sprint(len(lines) - 1)
	lines[0] = strings.Join(head, " ")
	testkit.Must(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o666))
}

// Ten thousand holders of a name: each command ends in seconds, and takes little memory. (On lease
// files a clean waits for a minute whether somebody prolongs them.)
func TestTenThousandEntries(t *testing.T) {
	t.Parallel()
	stores := scribes(t)
	own := redistest.Start(t) // each script keeps it from all its other clients for a while
	stores["redis"] = redisScribe{own, own.URL("quarantine=0s"), "golock"}
	testkit.Each(t, stores, func(t *testing.T, _ string, w scribe) {
		s := testkit.OnStore(t, w.url())
		r := as(s, 0, "acquire", "--name", "x", "--shared", "--for", "none", "--ttl", "1h")
		says(t, "acquire", r, 0)
		w.multiply(t, strings.TrimSpace(r.Stdout))
		for _, c := range []struct {
			args []string
			code int
			says string
		}{
			{[]string{"run", "-n", "--name", "x", "--", "true"}, 75, fmt.Sprintf("%d more", manyEntries-2)},
			{[]string{"ls", "--json"}, 0, fmt.Sprintf("-%032d", manyEntries)},
			{[]string{"clean"}, 0, "0 removed"},
		} {
			if _, isFiles := w.(fileScribe); isFiles && c.args[0] == "clean" {
				continue
			}
			r, peak := measured(t, s, 0, c.args...)
			if r.Code == 69 { // a busy machine is too slow for golock's own limits
				r.Complaint(t, 69)
			} else {
				says(t, c.args[0], r, c.code, c.says)
			}
			if peak > most || r.CPU > testkit.Slowed(10*time.Second) {
				t.Errorf("%v: %v of work, %d KiB", c.args, r.CPU, peak)
			}
		}
	})
}

// Beside the state of a lock on lease files there are things that golock does not make. They cost
// little, and hide nothing.
func TestDirectoryByOthers(t *testing.T) {
	t.Parallel()
	for what, make := range map[string]func(t *testing.T, dir string){
		"a state of millions of lines": func(t *testing.T, dir string) {
			const lines = 4<<20 - 20
			text := fmt.Sprintf("1 1 %d\n", lines) + strings.Repeat("\n", lines)
			testkit.Must(t, os.WriteFile(dir+"/v9999", []byte(text), 0o666))
		},
		"a state of 1 TB": func(t *testing.T, dir string) {
			testkit.Must(t, os.WriteFile(dir+"/v9999", nil, 0o666))
			testkit.Must(t, os.Truncate(dir+"/v9999", 1<<40))
		},
		"a FIFO for a state": func(t *testing.T, dir string) {
			testkit.Must(t, unix.Mkfifo(dir+"/v9999", 0o666))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			place := testkit.Place(t, 0o777)
			s := testkit.OnStore(t, "excl://"+place)
			says(t, "run", as(s, 0, "run", "--name", "x", "--", "true"), 0)
			make(t, filepath.Dir(testkit.OnlyFile(t, place+"/*/name")))
			for _, args := range [][]string{{"run", "-n", "--name", "x", "--", "true"}, {"ls"}} {
				r, peak := measured(t, s, 0, args...)
				judge(t, args[0], r)
				if peak > most || r.CPU > testkit.Slowed(10*time.Second) {
					t.Errorf("%v: %v of work, %d KiB", args, r.CPU, peak)
				}
			}
		})
	}
}
