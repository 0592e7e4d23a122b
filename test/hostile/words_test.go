//go:build integration

package hostile_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golock/locks"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// Names of users, commands and hosts that others choose must not control a terminal, forge a line or
// end a record, wherever golock shows them.

// evil has what a terminal obeys: ESC, BEL, CSI as one C1 character, a newline that would forge a
// message, characters that change the direction of writing, a tab, and bytes that are no UTF-8.
const evil = "\x1b]0;owned\x07\x1b[2J\u009b31m\r\ngolock: forged\t\u202egnp\u2066\u200f\u2028\x7f\xff\x9b1m"

// The same as far as JSON and SQL carry it.
const evilText = "\x1b]0;owned\x07\x1b[2J\u009b31m\r\ngolock: forged\t\u202egnp\u2066\u200f\u2028\x7f"

// plainText fails the test if a text has control characters.
func plainText(t testing.TB, what, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%s: not UTF-8: %q", what, text)
	}
	for _, r := range text {
		if r != '\n' && locks.IsTerminalControl(r) {
			t.Errorf("%s: %U in %q", what, r, text)
			return
		}
	}
	if strings.Contains(text, "\ngolock: forged") || strings.HasPrefix(text, "golock: forged") {
		t.Errorf("%s: a forged line: %q", what, text)
	}
}

// shownEverywhere has golock show a holder of "x" and those that wait for it in
// every form.
func shownEverywhere(s *testkit.Sandbox, uid int) {
	t := s.T
	t.Helper()
	show := func(want int, args ...string) string {
		t.Helper()
		r := as(s, uid, args...)
		what := fmt.Sprint(args)
		plainText(t, what+", stdout", r.Stdout)
		plainText(t, what+", stderr", r.Stderr)
		if r.Code != want {
			t.Errorf("%s: exit code %d, want %d: %s", what, r.Code, want, r.Stderr)
		}
		return r.Stdout
	}
	if table := show(0, "ls"); !strings.Contains(table, "owned") {
		t.Errorf("ls does not show it: %q", table)
	}
	var entries []map[string]any
	if err := json.Unmarshal([]byte(show(0, "ls", "x", "--json")), &entries); err != nil || len(entries) == 0 {
		t.Errorf("ls --json: %v, %v", entries, err)
	} else if words, _ := entries[0]["command"].([]any); len(words) == 0 || !strings.Contains(fmt.Sprint(words), "\x1b]0;owned") {
		t.Errorf("ls --json has not what was written: %q", words)
	}
	show(75, "run", "--name", "x", "-n", "--", "true")
	show(75, "run", "--name", "x", "-n", "-v", "--log-format", "json", "--", "true")
	show(75, "run", "--name", "x", "-v", "-w", "1.3", "--", "true")
	show(75, "run", "--name", "x", "-v", "-w", "1.3", "--log-format", "json", "--", "true")
	show(75, "acquire", "--name", "x", "-n", "--for", fmt.Sprint(os.Getpid()))
	// A tab stands between a word and what it is.
	complete := as(s, uid, "complete", "--", "ls", "")
	says(t, "complete", complete, 0, "x\tsh", "owned")
	plainText(t, "complete", strings.Replace(complete.Stdout, "x\t", "x ", 1)+complete.Stderr)

	// A terminal gets golock's own control sequences only.
	for _, args := range [][]string{{"ls", "--watch", "--interval", "0.1"}, {"run", "--name", "x", "-w", "1", "--", "true"}} {
		p := command(s, uid, args...).Setenv("TERM=xterm").OnTerminal(200, 30)
		p.Shows("owned")
		if args[0] == "ls" {
			p.Key("\x03")
		}
		text := p.Wait().Stdout
		for _, own := range []string{"\x1b[H", "\x1b[2K", "\x1b[J", "\r\x1b[K", "\r\n", "\r"} {
			text = strings.ReplaceAll(text, own, "\n")
		}
		plainText(t, fmt.Sprint(args, ", on a terminal"), text)
	}
}

func TestWordsOfLocalHolder(t *testing.T) {
	t.Parallel()
	s, dir := sharedLocal(t)
	hold(s, attacker, "--name", "x")
	forge(t, testkit.OnlyFile(t, dir+"/x.*.lock"), 0, func(b []byte) {
		n := copy(b[128+3:], "sh\x00"+evil+"\x00") // the command, behind one range of slots
		binary.LittleEndian.PutUint16(b[6:], uint16(n))
	})
	shownEverywhere(s, victim)

	// An evicted run says by whom.
	says(t, "break", as(s, attacker, "break", "--name", "x"), 0)
	h := hold(s, victim, "--name", "y")
	forge(t, testkit.OnlyFile(t, dir+"/y.*.lock"), 0, func(b []byte) {
		n := copy(b[128+3:], evil)
		binary.LittleEndian.PutUint16(b[54:], uint16(n))
		binary.LittleEndian.PutUint16(b[6:], 0)
	})
	h.Signal(syscall.SIGTERM)
	plainText(t, "evicted", h.Expects(79).Stderr)
}

func TestWordsOnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := testkit.OnStore(t, server.URL("quarantine=0s"))
	h := hold(s, attacker, "--name", "x", "--ttl", "60s")
	key, id, _ := strings.Cut(h.id, "-")
	entries := "golock:{" + key + "}:e"
	var record map[string]any
	testkit.Must(t, json.Unmarshal([]byte(server.Do("HGET", entries, id).(string)), &record))
	record["owner"] = map[string]any{"host": evilText, "pid": 1, "uid": 0, "user": evilText, "command": []string{"sh", evilText}}
	forged, err := json.Marshal(record)
	testkit.Must(t, err)
	server.Do("HSET", entries, id, string(forged))
	// A name that no rule allows, in the list of names.
	other := locks.KeyOf(evilText).String()
	for _, part := range "she" {
		server.Do("COPY", "golock:{"+key+"}:"+string(part), "golock:{"+other+"}:"+string(part))
	}
	server.Do("HSET", "golock:{"+other+"}:s", "name", evilText)
	server.Do("ZADD", "golock:names", time.Now().Add(time.Hour).UnixMilli(), evilText)
	if r := as(s, victim, "ls"); strings.Count(r.Stdout, "holding") != 2 {
		t.Errorf("the forged name is not listed: %q %q", r.Stdout, r.Stderr)
	}
	shownEverywhere(s, victim)
}

// Answers of a hostile server are shown in error messages.
// Slow: some answers count as an outage, of which golock waits for the end.
func TestWordsOfServers(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	words := strings.NewReplacer("\r", "", "\n", "").Replace(evil)
	var all sync.WaitGroup
	defer all.Wait()
	few := make(chan struct{}, 4) // golocks at a time: their patience with a server is short
	script := func(answer map[string]any) string {
		text, err := json.Marshal(answer)
		testkit.Must(t, err)
		return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
	}
	for what, answer := range map[string]string{
		"an error":           "-ERR " + words + "\r\n",
		"a refused login":    "-WRONGPASS " + words + "\r\n",
		"a word":             fmt.Sprintf("*1\r\n$%d\r\n%s\r\n", len(words), words),
		"no protocol at all": evil,
		"another format":     script(map[string]any{"verdict": "format", "found": evil}),
		"another name":       script(map[string]any{"verdict": "name", "found": evil}),
		"an evictor":         script(map[string]any{"verdict": "evicted", "by": evil}),
		"entries": script(map[string]any{"verdict": "busy", "name": evil, "entries": []any{map[string]any{
			"state": "holding", "id": strings.Repeat("1", 32),
			"record": map[string]any{
				"ttl": 30000, "weight": 1, "max": 1, "priority": "0", "ticket": "1", "fence": "2", "since": "3", "slots": "0",
				"owner": map[string]any{"host": evil, "user": evil, "command": []string{evil}, "pid": 1},
			},
		}}}),
	} {
		server := listen(t, loopback(t), func(c io.ReadWriter) {
			b := make([]byte, 64<<10)
			for n, err := c.Read(b); err == nil; n, err = c.Read(b) { // every request, be it a greeting
				reply := answer
				if strings.HasPrefix(answer, "$") && !bytes.Contains(bytes.ToLower(b[:n]), []byte("evalsha")) {
					reply = "-ERR unknown command\r\n"
				}
				if _, err := c.Write([]byte(reply)); err != nil {
					return
				}
			}
		})
		// Several at a time: some answers count as an outage.
		for _, args := range [][]string{
			{"run", "--name", "x", "-n", "--", "true"}, {"run", "--name", "x", "-n", "-v", "--log-format", "json", "--", "true"}, {"ls", "x"}, {"ls", "--json"},
			{"doctor", "--json"},
		} {
			all.Add(1)
			go func() {
				defer all.Done()
				few <- struct{}{}
				defer func() { <-few }()
				r := as(s, victim, append([]string{args[0], "--store", "redis://" + server.Addr().String()}, args[1:]...)...)
				plainText(t, fmt.Sprint(what, ": ", args), r.Stdout+r.Stderr)
				judge(t, fmt.Sprint(what, ": ", args), r)
				if understood := strings.HasPrefix(answer, "$"); understood && args[0] == "run" && !strings.Contains(r.Stderr, "owned") {
					t.Errorf("%s: %q: golock does not show it: %q", what, args, r.Stderr)
				}
			}()
		}
	}
}

// Reports are read by people and by Prometheus.
func TestWordsInReports(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	dir := testkit.Place(t, 0o777)
	file := filepath.Join(dir, "report")
	name := "x\"} 1\u202e\u2028{\\"
	cmd := command(s, victim, "run", "--store", "local://"+dir, "--name", name, "--report", file, "--", "true", evil)
	says(t, "run", cmd.Run(), 0)
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	plainText(t, "--report", string(text))
	if strings.Count(string(text), "\n") != 1 {
		t.Errorf("more than a line: %q", text)
	}
	r := as(s, victim, "report", file)
	says(t, "report", r, 0)
	for line := range strings.Lines(r.Stdout) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, `golock_`) || strings.Count(line, "\n") != 1 {
			t.Errorf("a line of its own: %q", line)
		}
		if strings.HasPrefix(line, "golock_") && !strings.Contains(line, `{name="x\"} 1`+"\u202e\u2028"+`{\\",store="local://`) {
			t.Errorf("the name is not whole: %q", line)
		}
	}

	// A line without an end is passed over, not kept.
	huge, err := os.Create(filepath.Join(dir, "huge"))
	testkit.Must(t, err)
	defer huge.Close()
	testkit.Must(t, huge.Truncate(64<<20))
	_, err = huge.WriteAt(append([]byte("\n"), text...), 64<<20)
	testkit.Must(t, err)
	r = as(s, 0, "report", huge.Name())
	judge(t, "a line of 64 MiB", r)
	says(t, "a line of 64 MiB", r, 0, "golock_runs_total", "longer than")
}
