package sql

import (
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/queue"
	"golock/test/testkit"
)

// The format that other versions read changes only together with its number.
func TestFormat(t *testing.T) {
	s := &Store{dialect: Dialect{Text: "TEXT(%d)", Table: "%[2]s\n%[3]s\n"}}
	text := s.tableText() + s.insertFirst(firstRow("server", 1, 2)) + "\n" + columns + "\n"
	for _, state := range []queue.State{queue.Waiting, queue.Offered, queue.Holding, queue.Ended, queue.Tombstone, nameRow} {
		r := row{Entry: queue.Entry{
			State: state, ID: "id", Replace: locks.ReplaceRunning, Evicted: "by 'me'", Fence: 3, Slots: []int{0, 1, 3},
			Claim: locks.Claim{Weight: 3, Max: 4, Priority: 5, Ticket: 6},
		}, ends: 7, due: 8, ttl: 9000, since: 10, hold: 11, wakeConn: 12, info: "info", login: "login"}
		fields := r.fields()
		text += strings.Join(fields, ",") + "\n"
	}
	testkit.Format(t, format, text)
}
