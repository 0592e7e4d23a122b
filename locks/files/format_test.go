package files

import (
	"encoding/json"
	"fmt"
	"testing"

	"golock/locks/owner"
	"golock/test/testkit"
)

// The format that other versions read changes only together with its number.
func TestFormat(t *testing.T) {
	r := record{
		Owner:    owner.Owner{Host: "host", PID: 1, UID: 2, User: "user", Runs: true, Command: []string{"a", "b"}},
		NoGolock: true, Clock: "clock", Process: process{Boot: "boot", PIDNS: "pid:[3]", PID: 4, Start: "5"}, TTL: 7,
	}
	text := ""
	for _, v := range []any{head{Format: format, Name: "n"}, r, map[string]observation{"record": {Heartbeat: "beat", Since: 8}}} {
		line, err := json.Marshal(v)
		testkit.Must(t, err)
		text += string(line) + "\n"
	}
	names := fmt.Sprintln(headFile, recordsDir, seenPrefix, requestPrefix, usedSuffix, versionName(9), stateFile, example().entries[0].record())
	testkit.Format(t, format, names+text+heartbeat{count: 10, sent: 11, since: 9, phase: phaseAccepted}.String()+string(example().text()))
}
