package redis

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks"
)

// Numbers that somebody else has written into a record are not cut to fit.
func TestRecordOfLargeNumbers(t *testing.T) {
	r := record{ttl: time.Second, claim: locks.Claim{Weight: 1, Priority: -3}, replace: locks.ReplaceRunning, owner: "d"}
	good := r.String()
	if back, err := parseRecord(good); err != nil || back.claim.Priority != -3 || back.replace != locks.ReplaceRunning {
		t.Fatalf("%q is read as %+v, %v", good, back, err)
	}
	for _, c := range []struct {
		field int
		text  string
		wide  bool // an int of 64 bits holds it
	}{
		{1, "4294967296", true}, {2, "2147483648", true}, {3, fmt.Sprintf("%016x", order(0)-1<<31), true},
		{2, "9223372036854775808", false}, {8, "3", false}, {8, "-1", false}, {8, "4294967296", false},
	} {
		fields := strings.Split(good, " ")
		fields[c.field] = c.text
		if r, err := parseRecord(strings.Join(fields, " ")); (err == nil) != (c.wide && strconv.IntSize == 64) {
			t.Errorf("field %d with %s: %+v, %v", c.field, c.text, r, err)
		}
	}
}
