package redis

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// The script has the numbers of the schedule and of the contract. It cannot import them.
func TestScriptConstants(t *testing.T) {
	script := queueScript + stepsScript
	for name, want := range map[string]int64{
		"UNREACHABLE_LIMIT":  queue.UnreachableLimit.Milliseconds(),
		"NEWCOMER_LIMIT":     queue.NewcomerLimit.Milliseconds(),
		"NEWCOMER_ASK_EVERY": queue.NewcomerAskEvery.Milliseconds(),
		"CHECK_AFTER":        queue.CheckAfter.Milliseconds(),
		"CHECKING_PLACE":     queue.CheckingPlace,
		"TTL":                lease.DefaultTTL.Milliseconds(),
		"MAXTTL":             locks.MaxTTL.Milliseconds(),
		"MAXHOLD":            int64(1<<63-1)/int64(time.Millisecond) + 1,
	} {
		line := regexp.MustCompile(`(?m)^local ` + name + ` = (\d+)`).FindStringSubmatch(script)
		if line == nil {
			t.Errorf("the script has no constant %s", name)
			continue
		}
		if got, _ := strconv.ParseInt(line[1], 10, 64); got != want {
			t.Errorf("the script has %s = %d, Go has %d", name, got, want)
		}
		if uses := regexp.MustCompile(`\b`+name+`\b`).FindAllString(script, -1); len(uses) < 2 {
			t.Errorf("the script does not use %s", name)
		}
	}

	// A waiter tells the script the longest time between two questions.
	for _, ttl := range []time.Duration{time.Second, lease.DefaultTTL, time.Hour} {
		e := (&Store{target: &target{}}).newEntry(locks.Request{TTL: ttl})
		if got, want := e.callOf(queue.Join).Every.duration(), queue.AskEvery(ttl); (want - got).Abs() > time.Millisecond {
			t.Errorf("TTL %v: the script gets %v, want %v", ttl, got, want)
		}
	}
}
