package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"golock/locks/sql"
)

// inUse is sql.Dialect.InUse.
const inUse = "SELECT LEAST(NULLIF(rolconnlimit,-1),NULLIF(datconnlimit,-1))," +
	"(SELECT COUNT(*) FROM pg_stat_get_backend_idset())" +
	" FROM pg_roles,pg_database WHERE rolname=current_user AND datname=current_database()"

// isServer is sql.Dialect.IsServer.
func isServer(conn, start int64) string {
	return fmt.Sprintf("pg_backend_pid()=%d AND %s=%d", conn, micros("pg_postmaster_start_time()"), start)
}

// release returns the text of a release. A statement of its own locks the name's row: only the next statement
// sees what the last step has committed. A release that makes an offer need not be on the disk before the
// acceptance is; a release without an offer must be.
func release(r sql.Release) string {
	d := dialect()
	parts := strings.NewReplacer(
		"{Table}", r.Table, "{IsName}", r.IsName, "{IsHolder}", r.IsHolder, "{Front}", r.Front, "{Others}", r.Others,
		"{Name}", r.Name, "{Granted}", r.Granted, "{OfTable}", r.OfTable, "{Ready}", r.Ready, "{Server}", r.Server,
		"{Tombstone}", r.Tombstone, "{Offer}", r.Offer, "{Turn}", strconv.FormatInt(r.Turn, 10), "{Clock}", d.Clock,
	)
	return strings.Join([]string{d.Begin, parts.Replace(lockName), parts.Replace(releaseSlot), commit}, ";")
}

const lockName = "SELECT 1 FROM {Table} WHERE {IsName} FOR NO KEY UPDATE"

// releaseSlot is the statement that releases the slot. Words in braces stand for the fields of sql.Release. valid
// has a row if everything is as the holder knows it; without that row no UPDATE finds anything.
const releaseSlot = `WITH
name AS (SELECT low,GREATEST(counter+2,{Clock}) AS next FROM {Table} WHERE {IsName} AND {Name}),
first AS (SELECT entry_id,ord,conn,{Ready} AS ready FROM {Table}
 WHERE {Front} AND ord>=(SELECT low FROM name) ORDER BY ord,entry_id LIMIT 1),
valid AS (SELECT next FROM name WHERE EXISTS (SELECT FROM {Table} WHERE {Granted})
 AND EXISTS (SELECT FROM {Table} WHERE {OfTable}) AND NOT EXISTS (SELECT FROM {Table} WHERE {Others})
 AND NOT EXISTS (SELECT FROM first WHERE NOT ready) AND {Server}),
released AS (UPDATE {Table} SET {Tombstone} FROM valid WHERE {IsHolder}),
offered AS (UPDATE {Table} AS w SET {Offer},fence=next-1 FROM valid,first
 WHERE w.{Front} AND w.entry_id=first.entry_id RETURNING w.entry_id,w.conn,w.ord),
counted AS (UPDATE {Table} SET seen=counter,counter=next,turn={Turn},
 moved=CASE WHEN EXISTS (SELECT FROM first) THEN next ELSE moved END,
 low=COALESCE((SELECT ord FROM first),{Table}.low) FROM valid WHERE {IsName})
SELECT (SELECT COUNT(*) FROM valid),COALESCE((SELECT conn FROM offered),0),
 (SELECT pg_notify('golock_'||entry_id,'') FROM offered),
 set_config('synchronous_commit',CASE WHEN EXISTS (SELECT FROM valid) AND NOT EXISTS (SELECT FROM offered)
 THEN 'on' ELSE 'off' END,true)`

// Release implements sql.Conn.
func (c *conn) Release(ctx context.Context, text string) ([]sql.Rows, error) { return c.Run(ctx, text) }
