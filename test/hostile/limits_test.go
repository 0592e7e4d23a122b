//go:build integration

package hostile_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// The largest numbers and times work.
func TestLargestNumbers(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	const longest = "106751d"
	for _, store := range []string{"local://" + testkit.Place(t, 0o1777), "mkdir://" + testkit.Place(t, 0o777), redistest.StoreURL(t)} {
		all := [][]string{
			{"--time-limit", longest, "--kill-after", longest, "--wait", longest, "--hold", longest},
			{"--priority", "-2147483648"}, {"--priority", "2147483647", "--max-queue", "2147483647"}, {"--ttl", "365d"},
		}
		for i, flags := range all {
			if strings.HasPrefix(store, "local") && flags[0] == "--ttl" {
				continue
			}
			args := append([]string{"run", "--store", store, "--name", fmt.Sprint("n", i)}, flags...)
			says(t, fmt.Sprint(args), as(s, 0, append(args, "--", "echo", "started")...), 0, "started")
		}
	}
}

// A configuration file of 1 MiB ends in time, whatever is in it.
func TestBombs(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	const size = 1 << 20
	var tables strings.Builder
	for i := range 10_000 { // their long names fill the file
		fmt.Fprintf(&tables, "[lock.\"%085d\"]\nmax=1\n", i)
	}
	dir := testkit.Place(t, 0o755)
	store := "local://" + testkit.Place(t, 0o1777)
	for what, text := range map[string]string{
		"arrays":        "[defaults]\nok-exit = " + strings.Repeat("[", size-100),
		"dotted keys":   strings.Repeat("a.", size/2-10) + "a = 1",
		"inline tables": "lock = " + strings.Repeat("{x=", size/3-10),
		"headers":       "[" + strings.Repeat("a.", size/2-10) + "a]",
		"escapes":       "[defaults]\nreport = \"" + strings.Repeat(`\u0041`, size/6-10) + "\"",
		"a long list":   "[defaults]\nok-exit = [" + strings.Repeat("1,", size/2-30) + "1]",
		"many tables":   tables.String(),
	} {
		path := dir + "/config.toml"
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
		judge(t, what, as(s, 0, "run", "--config", path, "--name", "1", "--store", store, "--", "true"))
	}
}

// Arguments and variables up to what the kernel takes reach the command, also
// through a guard, or are refused as without golock.
func TestManyArguments(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	word := strings.Repeat("w", 100_000)
	for _, store := range []string{"local://" + testkit.Place(t, 0o1777), "mkdir://" + testkit.Place(t, 0o777)} {
		run := func(script string, args, vars []string) testkit.Result {
			args = append([]string{"run", "--store", store, "--name", "x", "--", "sh", "-c", script, "sh"}, args...)
			return command(s, victim, args...).Setenv(vars...).Run()
		}
		var args, large, many []string
		for i := range 9 { // 1.8 MB; the kernel takes 2 MiB
			args, large = append(args, word), append(large, fmt.Sprintf("V%d=%s", i, word))
		}
		if r := run("echo $#", args, large); r.Code != 0 || r.Stdout != "9\n" {
			t.Errorf("18 x 100 kB on %s: %v", store, r)
		}
		for i := range 10_000 {
			many = append(many, fmt.Sprintf("V%d=x", i))
		}
		if r := run("env | grep -c ^V", nil, many); r.Code != 0 || r.Stdout != "10000\n" {
			t.Errorf("10000 variables on %s: %v", store, r)
		}
		// Anybody can invent enclosing runs.
		id := strings.Repeat("a", 32) + "-" + strings.Repeat("b", 32) + ",,x\n\x1b,"
		held := []string{"GOLOCK_HELD=" + strings.Repeat(id, 1700), "GOLOCK_ID=x\ny", "GOLOCK_LOCK_NAME=x"}
		if r := run("echo ${#GOLOCK_HELD}", nil, held); r.Code != 0 || len(r.Stdout) != 7 {
			t.Errorf("a long GOLOCK_HELD on %s: %v", store, r)
		}
	}
}
