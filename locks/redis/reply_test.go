package redis

import (
	"testing"

	"golock/locks/lease"
)

type errorReply string

func (r errorReply) Error() string { return string(r) }
func (errorReply) RedisError()     {}

// Errors of a server in a state that passes are an outage: holders and waiters try again.
func TestPassingReplies(t *testing.T) {
	s := &Store{target: &target{}}
	for _, text := range []string{
		"READONLY You can't write against a read only replica.",
		"LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"MISCONF Redis is configured to save RDB snapshots, but it is currently unable to persist on disk.",
		"NOREPLICAS Not enough good replicas to write.",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write against a read only replica.",
		"ERR max number of clients reached",
	} {
		if err := s.replyAsRefusal(errorReply(text)); !lease.IsTemporary(err) {
			t.Errorf("%v does not pass", err)
		}
	}
	for _, text := range []string{"NOPERM this user has no permissions", "ERR unknown command", "MOVED 1 127.0.0.1:1"} {
		if err := s.replyAsRefusal(errorReply(text)); lease.IsTemporary(err) {
			t.Errorf("%v passes", err)
		}
	}
}
