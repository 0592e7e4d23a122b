package local

import (
	"bytes"
	"fmt"
	"testing"

	"golock/test/testkit"
)

// The format that other versions read changes only together with its number.
func TestFormat(t *testing.T) {
	file := tableFile(header{checkedPath: 1, next: 2, fence: 3, name: "n"}, record{
		stored: stored{
			state: stateHolding, weight: 3, max: 4, priority: -5, ticket: 6, id: [16]byte{7}, uid: 8, pid: 9, pidNS: 10,
			written: 11, since: 12, fence: 13, replace: 2, noGolock: 1, holdUntil: 14, boot: [16]byte{15}, evictedAt: 16,
		},
		evictor: "me", extra: "later", slots: []int{0, 1, 3}, command: "a\x00b\x00",
	}, record{stored: stored{state: stateWaiting, weight: 1, ticket: 17, replace: 1}})
	text := ""
	for at := 0; at < len(file); at += 16 {
		if line := file[at : at+16]; len(bytes.Trim(line, "\x00")) > 0 {
			text += fmt.Sprintf("%05x %x\n", at, line)
		}
	}
	testkit.Format(t, format, text)
}
