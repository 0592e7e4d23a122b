package mysql

import (
	"strings"
	"testing"
)

// A KILL QUERY that comes late must not end a text whose transaction has been
// committed already: the error would say that nothing was done.
func TestNothingAfterCommit(t *testing.T) {
	for _, lasting := range []bool{true, false} {
		if text := (dialect{}).Commit(lasting); !strings.HasSuffix(text, ";COMMIT") {
			t.Errorf("a transaction ends with %q", text)
		}
	}
}
