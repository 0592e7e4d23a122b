package mysql

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"golock/locks"
	"golock/locks/sql"
)

// MayCreate implements sql.Dialect. The server looks at the right to make a
// table, and whether it replicates such a statement (see Create), before it finds that
// there is nothing to select from.
func (d dialect) MayCreate(ctx context.Context, ask sql.Ask, table string) (bool, error) {
	ref, err := locks.NewRef("golock doctor")
	if err != nil {
		return false, err
	}
	nothing := fmt.Sprintf("%s_%x", table, ref.ID[:6])
	_, err = ask(ctx, "CREATE TABLE "+d.Quote(table)+" AS SELECT 1 FROM "+d.Quote(nothing))
	switch v, _, _ := d.Judge(err); {
	case err == nil, v == sql.Exists: // it has been made in between
		return true, nil
	case v == sql.NoTable:
		return true, nil
	case v == sql.NoRight:
		return false, nil
	}
	return false, err
}

// settings are those that Examine looks at. Servers that lack one do not show
// it.
const settings = "'innodb_flush_log_at_trx_commit','log_bin','sync_binlog','binlog_format','read_only','super_read_only','max_connections'," +
	"'max_user_connections','wsrep_on','innodb_read_only','rpl_semi_sync_master_enabled','rpl_semi_sync_source_enabled'"

// Examine implements sql.Dialect.
func (dialect) Examine(ctx context.Context, ask sql.Ask, around sql.Surroundings, found *locks.Findings) {
	if rows, err := ask(ctx, "SELECT VERSION()"); err == nil {
		version(found, rows[0][0][0])
	}
	rows, err := ask(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ("+settings+")")
	if err != nil {
		found.Add(locks.Note, "settings", "cannot be seen: "+err.Error(), "whether the server keeps what it has committed stays open", "")
		return
	}
	set := sql.Settings(rows)
	on := func(name string) bool { return set[name] == "ON" || set[name] == "1" }
	const flush = "innodb_flush_log_at_trx_commit"
	if value := set[flush]; value == "0" || value == "2" {
		found.Add(locks.Problem, flush, "is "+value+": a crash loses about the last second", around.Forgotten(), "SET GLOBAL "+flush+"=1 and the same in the server's configuration")
	} else {
		found.OK(flush, "is "+value+": what was committed outlives a crash")
	}
	if on("read_only") || on("super_read_only") || on("innodb_read_only") {
		why := "no slot can be had there"
		if around.Table != "" && !on("super_read_only") && !on("innodb_read_only") {
			why += ", unless this user may write all the same (see rehearsal)"
		}
		found.Add(locks.Problem, "read_only", "the server is read-only, perhaps a replica", why, "name the primary server")
	}
	if on("log_bin") {
		binlog(found, set, on, around)
	}
	if on("wsrep_on") {
		found.Add(locks.Note, "Galera", "the server is a node of a cluster",
			"each time another node answers it counts as a server that has just come back, and nothing is granted for the quarantine",
			"name one node in the URL, the others after it only for when that fails")
	}
	if around.Table != "" {
		engine(ctx, found, ask, around.Table)
	}
	used := 0
	if rows, err := ask(ctx, "SHOW GLOBAL STATUS LIKE 'Threads_connected'"); err == nil {
		used, _ = strconv.Atoi(sql.Settings(rows)["threads_connected"])
	}
	most, _ := strconv.Atoi(set["max_connections"])
	sql.Room(found, most, used, around.Waiters)
	if n, _ := strconv.Atoi(set["max_user_connections"]); n > 0 && n < around.Waiters+2 {
		found.Add(locks.Note, "max_user_connections", fmt.Sprintf("one user may have %d connections, and up to %d waiters of each name keep one", n, around.Waiters),
			"a queue can use them up: renewals of the same user fail then", "a larger max_user_connections, or a smaller ?waiters= in the URL")
	}
}

func version(found *locks.Findings, text string) {
	what, least := "MySQL "+locks.Printable(text, 60), [2]int{5, 7}
	if strings.Contains(text, "MariaDB") {
		what, least = locks.Printable(text, 60), [2]int{10, 5}
	}
	var major, minor int
	if n, _ := fmt.Sscanf(text, "%d.%d", &major, &minor); n == 2 && (major < least[0] || major == least[0] && minor < least[1]) {
		found.Add(locks.Problem, "version", what, fmt.Sprintf("golock is made for %d.%d and later", least[0], least[1]), "a newer server")
		return
	}
	found.OK("version", what)
}

// binlog looks at what only servers with a binary log have.
func binlog(found *locks.Findings, set map[string]string, on func(string) bool, around sql.Surroundings) {
	if set["binlog_format"] == "STATEMENT" {
		found.Add(locks.Problem, "binlog_format", "is STATEMENT", "the server refuses every step of golock's, which read committed data",
			"SET GLOBAL binlog_format=ROW or MIXED and the same in the server's configuration")
	}
	if set["sync_binlog"] != "1" {
		found.Add(locks.Note, "sync_binlog", "is "+set["sync_binlog"]+" on a server with a binary log",
			"a crash of the machine can undo what was committed last, or leave replicas without it", "SET GLOBAL sync_binlog=1 and the same in the server's configuration")
	}
	if !on("rpl_semi_sync_master_enabled") && !on("rpl_semi_sync_source_enabled") {
		found.Add(locks.Note, "replicas", "if there are any, commits do not wait for them", "one that takes over may lack the last grants: "+around.Forgotten(),
			"semi-synchronous replication, if a replica may take over")
	}
}

// engine looks at how the table is kept: somebody may have made it by hand.
func engine(ctx context.Context, found *locks.Findings, ask sql.Ask, table string) {
	rows, err := ask(ctx, "SHOW CREATE TABLE "+table)
	if err != nil || len(rows) != 1 || len(rows[0]) != 1 || len(rows[0][0]) < 2 {
		return
	}
	if text := rows[0][0][1]; !strings.Contains(text, "ENGINE=InnoDB") {
		_, name, _ := strings.Cut(text, "ENGINE=")
		name, _, _ = strings.Cut(name, " ")
		found.Add(locks.Problem, "engine", "the table's is "+locks.Printable(name, 30), "it has no transactions: two may be let in at once", "ALTER TABLE "+table+" ENGINE=InnoDB")
	}
}
