package hostile_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golock/locks/redis/redistest"
)

// This file pins that nothing is too large to be judged.

// Numbers and times at the end of what they can be do what they say, or are
// refused before anything is started.
func TestLargestNumbers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, store := range []string{"local://" + place(t, 0o1777), "mkdir://" + place(t, 0o777), fmt.Sprintf("redis://%s?quarantine=0s", server.Addr())} {
		name := 0
		run := func(want int, flags ...string) {
			t.Helper()
			name++
			args := append([]string{"run", "--store", store, "--name", fmt.Sprint("n", name)}, flags...)
			r := as(t, victim, append(args, "--", "echo", "started")...)
			judge(t, fmt.Sprint(args), r)
			if r.code != want || (want == 64) != (r.out == "") {
				t.Errorf("%v: exit code %d, want %d: %s%s", args, r.code, want, r.out, r.err)
			}
		}
		const longest = "106751d"
		for _, flag := range []string{"--time-limit", "--kill-after", "--wait", "--hold"} {
			run(0, flag, longest)
			run(64, flag, "106752d")
			run(64, flag, "99999999999999999999h")
			run(64, flag, "-1")
			run(64, flag, "1e300")
		}
		run(0, "--priority", "-2147483648")
		run(0, "--priority", "2147483647", "--max-queue", "2147483647")
		for _, flags := range [][]string{
			{"--priority", "2147483648"}, {"--max", "2147483648"}, {"--max", "0"}, {"--max", "-1"}, {"--weight", "9223372036854775808", "--max", "1"},
			{"--weight", "0"}, {"--max-queue", "-1"}, {"-E", "256"}, {"-E", "-1"}, {"--ok-exit", "256"}, {"--signal", "65"}, {"--signal", "0"}, {"--rewrite", "1:99999999999"},
		} {
			run(64, flags...)
		}
		if !strings.HasPrefix(store, "local") {
			run(64, "--ttl", "0.999")
			run(0, "--ttl", "365d")
		}
	}
}

// A configuration of at most 1 MiB takes a moment, whatever is in it.
func TestBombs(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	dir := place(t, 0o755)
	store := "local://" + place(t, 0o1777)
	for what, text := range map[string]string{
		"arrays":        "[defaults]\nok-exit = " + strings.Repeat("[", size-100),
		"dotted keys":   strings.Repeat("a.", size/2-10) + "a = 1",
		"inline tables": "lock = " + strings.Repeat("{x=", size/3-10),
		"headers":       "[" + strings.Repeat("a.", size/2-10) + "a]",
		"escapes":       "[defaults]\nreport = \"" + strings.Repeat(`\u0041`, size/6-10) + "\"",
		"a long list":   "[defaults]\nok-exit = [" + strings.Repeat("1,", size/2-30) + "1]",
		"many tables":   manyTables(),
	} {
		path := dir + "/config.toml"
		must(t, os.WriteFile(path, []byte(text), 0o600))
		judge(t, what, as(t, 0, "run", "--config", path, "--name", "1", "--store", store, "--", "true"))
	}
}

func manyTables() string {
	var b strings.Builder
	for i := range 45_000 {
		fmt.Fprintf(&b, "[lock.\"%d\"]\nmax=1\n", i)
	}
	return b.String()
}

// Arguments and variables up to what the kernel takes reach the command, also
// through a guard, or are refused as without golock.
func TestManyArguments(t *testing.T) {
	t.Parallel()
	word := strings.Repeat("w", 100_000)
	for _, store := range []string{"local://" + place(t, 0o1777), "mkdir://" + place(t, 0o777)} {
		for _, count := range []int{18, 30} { // 1.8 MB fit, 3 MB do not
			args := []string{golock, "run", "--store", store, "--name", "x", "--", "sh", "-c", `echo $#`, "sh"}
			for range count / 2 {
				args = append(args, word)
			}
			cmd := start(victim, args...)
			for i := range count / 2 {
				cmd.Env = append(cmd.Env, fmt.Sprintf("V%d=%s", i, word))
			}
			if count == 30 { // the kernel does not even start golock
				if err := cmd.Start(); err == nil {
					t.Error("3 MB of arguments: started")
					_ = cmd.Wait()
				}
				continue
			}
			r := finish(t, cmd)
			if r.code != 0 || strings.TrimSpace(r.out) != fmt.Sprint(count/2) {
				t.Errorf("%d x 100 kB on %s: %d %q %.300s", count, store, r.code, r.out, r.err)
			}
		}
		cmd := start(victim, golock, "run", "--store", store, "--name", "x", "--", "sh", "-c", "env | grep -c ^V")
		const variables = 50_000
		for i := range variables {
			cmd.Env = append(cmd.Env, fmt.Sprintf("V%d=x", i))
		}
		if r := finish(t, cmd); r.code != 0 || strings.TrimSpace(r.out) != fmt.Sprint(variables) {
			t.Errorf("%d variables on %s: %d %q %.300s", variables, store, r.code, r.out, r.err)
		}
		// Runs that this one is said to be inside of are anybody's to make up.
		cmd = start(victim, golock, "run", "--store", store, "--name", "x", "--", "sh", "-c", "echo ${#GOLOCK_HELD}")
		id := strings.Repeat("a", 32) + "-" + strings.Repeat("b", 32) + ",,x\n\x1b,"
		cmd.Env = append(cmd.Env, "GOLOCK_HELD="+strings.Repeat(id, 1700), "GOLOCK_ID=x\ny", "GOLOCK_LOCK_NAME=x")
		if r := finish(t, cmd); r.code != 0 || len(strings.TrimSpace(r.out)) != 6 {
			t.Errorf("a long GOLOCK_HELD on %s: %d %q %.300s", store, r.code, r.out, r.err)
		}
	}
}
