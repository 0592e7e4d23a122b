package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"golock/locks/sql"
)

// Only one of the features that are not supported says that the server is a standby. (The server's own
// error: TestPromotedReplica.)
func TestJudge(t *testing.T) {
	d := dialect()
	for _, tt := range []struct {
		err  pgconn.PgError
		want sql.ErrorKind
	}{
		{pgconn.PgError{Code: "0A000", Message: "cannot set transaction read-write mode during recovery"}, sql.Standby},
		{pgconn.PgError{Code: "0A000", Message: "kann nicht im Read-Write-Modus sein", Routine: settingCheck}, sql.Standby},
		{pgconn.PgError{Code: "25006", Message: "cannot execute UPDATE in a read-only transaction"}, sql.Standby},
		{pgconn.PgError{Code: "0A000", Message: "LISTEN is not supported", Routine: "transformStmt"}, sql.Refused},
	} {
		if v, _ := d.KindOf(&tt.err); v != tt.want {
			t.Errorf("%v: verdict %v, want %v", &tt.err, v, tt.want)
		}
	}
}
