package mysql

import (
	"context"
	"fmt"
	"strings"

	"golock/locks/sql"
)

// release returns the text of a release. The text keeps what it reads in variables, because a subquery in an
// UPDATE would lock the rows that it reads. @golock_ok is 1 if everything is as the holder knows it; otherwise no
// UPDATE finds a row. The KILL comes after the COMMIT, so that the woken waiter sees its offer.
func release(r sql.Release) string {
	d := dialect()
	return strings.Join([]string{
		d.Begin,
		"SET @golock_ok=0,@golock_counter=0,@golock_low='',@golock_granted=0,@golock_others=1,@golock_table=0," +
			"@golock_first='',@golock_ord='',@golock_conn=0,@golock_ready=1,@golock_offer=0",
		fmt.Sprintf("SELECT %s,counter,low INTO @golock_ok,@golock_counter,@golock_low FROM %s WHERE %s FOR UPDATE",
			r.Name, r.Table, r.IsName),
		fmt.Sprintf("SELECT COUNT(*) INTO @golock_granted FROM %s WHERE %s", r.Table, r.Granted),
		fmt.Sprintf("SELECT COUNT(*) INTO @golock_others FROM %s WHERE %s", r.Table, r.Others),
		fmt.Sprintf("SELECT COUNT(*) INTO @golock_table FROM %s WHERE %s", r.Table, r.OfTable),
		fmt.Sprintf("SELECT entry_id,ord,conn,%s INTO @golock_first,@golock_ord,@golock_conn,@golock_ready"+
			" FROM %s WHERE %s AND ord>=@golock_low ORDER BY ord,entry_id LIMIT 1", r.Ready, r.Table, r.Front),
		"SET @golock_ok=@golock_ok AND @golock_granted=1 AND @golock_others=0 AND @golock_table=1 AND @golock_ready AND " +
			r.Server,
		fmt.Sprintf("SET @golock_offer=@golock_ok AND @golock_first<>'',@golock_counter=GREATEST(@golock_counter+2,%s)",
			d.Clock),
		fmt.Sprintf("UPDATE %s SET %s WHERE %s AND @golock_ok", r.Table, r.Tombstone, r.IsHolder),
		fmt.Sprintf("UPDATE %s SET %s,fence=@golock_counter-1 WHERE %s AND entry_id=@golock_first AND @golock_offer",
			r.Table, r.Offer, r.Front),
		fmt.Sprintf("UPDATE %s SET seen=counter,counter=@golock_counter,turn=%d,"+
			"moved=IF(@golock_offer,@golock_counter,moved),low=IF(@golock_offer,@golock_ord,low)"+
			" WHERE %s AND @golock_ok", r.Table, r.Turn, r.IsName),
		"SELECT IF(@golock_ok,1,0),IF(@golock_offer,@golock_conn,0)",
		d.Commit,
		"KILL QUERY IF(@golock_offer,@golock_conn,0)",
	}, ";")
}

// Release implements sql.Conn. The KILL fails if the slot was offered to no waiter, or if the waiter's connection
// has ended: that is no failure of the release.
func (c *conn) Release(ctx context.Context, text string) (answers []sql.Rows, err error) {
	answers, err = c.Run(ctx, text)
	if code(err) == noSuchThread {
		return answers, nil
	}
	return answers, err
}
