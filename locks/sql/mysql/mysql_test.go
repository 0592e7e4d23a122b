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
	if text := dialect().Commit; !strings.HasSuffix(text, ";COMMIT") {
		t.Errorf("a transaction ends with %q", text)
	}
}

// Errors of MySQL that MariaDB does not know.
func TestJudge(t *testing.T) {
	d := dialect()
	for number, want := range map[uint16]sql.Verdict{
		3159: sql.Refused,   // it wants TLS: no outage, for which --on-unavailable run is
		4031: sql.Transient, // it has closed an idle connection: the next attempt connects
	} {
		if v, _ := d.Judge(&mysql.MySQLError{Number: number}); v != want {
			t.Errorf("error %d: verdict %v", number, v)
		}
	}
}
