package mysql

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"golock/locks/sql"
	"golock/test/testkit"
)

// A KILL QUERY that comes late must not end a text whose transaction has been
// committed already: the error would say that nothing was done.
func TestNothingAfterCommit(t *testing.T) {
	if text := dialect().Commit; !strings.HasSuffix(text, ";COMMIT") {
		t.Errorf("a transaction ends with %q", text)
	}
}

// Each text that reads the clock sets the time zone. In the hour that a server's time zone repeats when summer time
// ends, the clock would go back: the rows of those who live would look overdue.
func TestClockHasItsTimeZone(t *testing.T) {
	d := dialect()
	for name, text := range map[string]string{"Begin": d.Begin, "Single": d.Single, "the start of a connection": settings} {
		if !strings.Contains(text, "time_zone='+00:00'") {
			t.Errorf("%s sets no time zone: %s", name, text)
		}
	}
}

// Errors of MySQL that MariaDB does not know.
func TestJudge(t *testing.T) {
	d := dialect()
	for number, want := range map[uint16]sql.ErrorKind{
		3159: sql.Refused,   // it wants TLS: no outage, for which --on-unavailable run is
		4031: sql.Transient, // it has closed an idle connection: the next attempt connects
	} {
		if v, _ := d.KindOf(&mysql.MySQLError{Number: number}); v != want {
			t.Errorf("error %d: verdict %v", number, v)
		}
	}
}

// A server that takes a connection and says nothing is there: a newcomer waits longer for the
// first answer of that than for one that cannot be reached.
func TestConnected(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, _, err = connect(ctx, &sql.Target{}, silent.Addr().String(), cancel) // which ends the attempt
	if err == nil || ctx.Err() != context.Canceled {
		t.Errorf("%v; the context: %v", err, ctx.Err())
	}
}
