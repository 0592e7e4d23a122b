package mysql

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"golock/locks/sql"
)

// A KILL QUERY that comes late must not end a text whose transaction has been
// committed already: the error would say that nothing was done.
func TestNothingAfterCommit(t *testing.T) {
	for _, text := range []string{dialect().Commit, dialect().CommitLater} {
		if !strings.HasSuffix(text, ";COMMIT") {
			t.Errorf("a transaction ends with %q", text)
		}
	}
}

// Errors of MySQL that MariaDB does not know.
func TestJudge(t *testing.T) {
	for number, want := range map[uint16]struct {
		verdict sql.Verdict
		said    bool
	}{
		3159: {sql.Refused, true},    // it wants TLS: no outage, for which --on-unavailable run is
		4031: {sql.Transient, false}, // it has closed an idle connection: the next attempt connects
	} {
		if v, said, _ := (driver{}).Judge(&mysql.MySQLError{Number: number}); v != want.verdict || said != want.said {
			t.Errorf("error %d: verdict %v, said %t", number, v, said)
		}
	}
}
