package local

import (
	"bytes"
	"fmt"
	"testing"

	"golock/locks"
	"golock/test/testkit"
)

// What other versions read has not changed without a new number.
func TestFormat(t *testing.T) {
	file := tableFile(header{checkedPath: 1, next: 2, fence: 3, name: "n"}, record{
		state: stateHolding, claim: locks.Claim{Weight: 3, Max: 4, Priority: -5, Ticket: 6}, id: [16]byte{7}, uid: 8, pid: 9, pidNS: 10,
		joined: 11, since: 12, fence: 13, replace: locks.ReplaceRunning, noGolock: true, holdUntil: 14, boot: [16]byte{15},
		evictor: "me", evictedAt: 16, slots: []int{0, 1, 3}, command: []string{"a", "b"},
	}, record{state: stateWaiting, claim: locks.Claim{Weight: 1, Ticket: 17}, replace: locks.ReplaceWaiting})
	text := ""
	for at := 0; at < len(file); at += 16 {
		if line := file[at : at+16]; len(bytes.Trim(line, "\x00")) > 0 {
			text += fmt.Sprintf("%05x %x\n", at, line)
		}
	}
	testkit.Format(t, format, text)
}
