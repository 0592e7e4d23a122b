package postgres

import (
	"context"
	"fmt"
	"strings"

	"golock/locks/sql"
)

// inUse is the statement InUse of sql.Dialect.
const inUse = "SELECT LEAST(NULLIF(rolconnlimit,-1),NULLIF(datconnlimit,-1)),(SELECT COUNT(*) FROM pg_stat_get_backend_idset())" +
	" FROM pg_roles,pg_database WHERE rolname=current_user AND datname=current_database()"

// isServer returns the condition IsServer of sql.Dialect.
func isServer(conn, start int64) string {
	return fmt.Sprintf("pg_backend_pid()=%d AND %s=%d", conn, micros("pg_postmaster_start_time()"), start)
}

// release returns the text of a release. A statement of its own locks the name's row: only the next statement
// sees what the last step has committed. A release that makes an offer need not be on the disk before the
// acceptance is; a release without an offer must be.
func release(r sql.Release) string {
	d := dialect()
	return strings.Join([]string{
		d.Begin,
		fmt.Sprintf("SELECT 1 FROM %s WHERE %s FOR NO KEY UPDATE", r.Table, r.IsName),
		fmt.Sprintf(`WITH name AS (SELECT low,GREATEST(counter+2,%[3]s) AS next FROM %[1]s WHERE %[2]s AND %[4]s),
first AS (SELECT entry_id,ord,conn,%[5]s AS ready FROM %[1]s
 WHERE %[6]s AND ord>=(SELECT low FROM name) ORDER BY ord,entry_id LIMIT 1),
valid AS (SELECT next FROM name WHERE EXISTS (SELECT FROM %[1]s WHERE %[7]s) AND EXISTS (SELECT FROM %[1]s WHERE %[8]s)
 AND NOT EXISTS (SELECT FROM %[1]s WHERE %[9]s) AND NOT EXISTS (SELECT FROM first WHERE NOT ready) AND %[10]s),
released AS (UPDATE %[1]s SET %[11]s FROM valid WHERE %[12]s),
offered AS (UPDATE %[1]s AS w SET %[13]s,fence=next-1 FROM valid,first
 WHERE w.%[6]s AND w.entry_id=first.entry_id RETURNING w.entry_id,w.conn,w.ord),
counted AS (UPDATE %[1]s SET seen=counter,counter=next,turn=%[14]d,
 moved=CASE WHEN EXISTS (SELECT FROM first) THEN next ELSE moved END,
 low=COALESCE((SELECT ord FROM first),%[1]s.low) FROM valid WHERE %[2]s)
SELECT (SELECT COUNT(*) FROM valid),COALESCE((SELECT conn FROM offered),0),
 (SELECT pg_notify('golock_'||entry_id,'') FROM offered),
 set_config('synchronous_commit',CASE WHEN EXISTS (SELECT FROM valid) AND NOT EXISTS (SELECT FROM offered)
 THEN 'on' ELSE 'off' END,true)`,
			r.Table, r.IsName, d.Clock, r.Name, r.Ready, r.Front, r.Own, r.OfTable, r.Others, r.Server,
			r.Tombstone, r.IsOwn, r.Offer, r.Turn),
		commit,
	}, ";")
}

// Release implements sql.Conn.
func (c *conn) Release(ctx context.Context, text string) ([]sql.Rows, error) { return c.Run(ctx, text) }
