package mysql

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"golock/locks"
	"golock/locks/sql"
)

func examine(ctx context.Context, x *sql.Examination) {
	set, err := x.Settings(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ("+ // it shows those that it has
		"'version','innodb_flush_log_at_trx_commit','log_bin','sync_binlog','binlog_format','read_only',"+
		"'super_read_only','max_connections','max_user_connections','wsrep_on','innodb_read_only',"+
		"'rpl_semi_sync_master_enabled','rpl_semi_sync_source_enabled');SHOW GLOBAL STATUS LIKE 'Threads_connected'")
	if err != nil {
		return
	}
	if version := set["version"]; strings.Contains(version, "MariaDB") {
		x.Version("", version, "10.5")
	} else {
		x.Version("MySQL ", version, "5.7")
	}
	on := func(name string) bool { return set[name] == "ON" || set[name] == "1" }
	const flush = "innodb_flush_log_at_trx_commit"
	if value := set[flush]; value == "0" || value == "2" {
		x.Add(locks.Problem, flush, "is "+value+": a crash loses about the last second", x.Forgotten(),
			setGlobal(flush+"=1"))
	} else {
		x.OK(flush, "is "+value+": what was committed outlives a crash")
	}
	if on("read_only") || on("super_read_only") || on("innodb_read_only") {
		why := "no slot can be had there"
		if !on("super_read_only") && !on("innodb_read_only") {
			why += ", unless this user may write all the same"
		}
		x.Add(locks.Problem, "read_only", "the server is read-only, perhaps a replica", why, "name the primary server")
	}
	if on("log_bin") {
		binlog(x, set, on("rpl_semi_sync_master_enabled") || on("rpl_semi_sync_source_enabled"))
	}
	if on("wsrep_on") {
		x.Add(locks.Note, "Galera", "the server is a node of a cluster",
			"a node that answers for the first time counts as a server that has just come back, "+
				"and nothing is granted for the quarantine",
			"name one node in the URL, the others after it only for when that fails")
	}
	examineEngine(ctx, x)
	most, _ := strconv.Atoi(set["max_connections"])
	used, _ := strconv.Atoi(set["threads_connected"])
	x.Room(most, used)
	if n, _ := strconv.Atoi(set["max_user_connections"]); n > 0 && n < x.Waiters()+2 {
		x.Add(locks.Note, "max_user_connections",
			fmt.Sprintf("one user may have %d connections, and up to %d waiters of each name keep one", n, x.Waiters()),
			"a queue can use them up: renewals of the same user fail then",
			"a larger max_user_connections, or a smaller ?waiters= in the URL")
	}
}

func setGlobal(setting string) string {
	return "SET GLOBAL " + setting + " and the same in the server's configuration"
}

// binlog looks at what only servers with a binary log have. synced: commits wait for a
// replica.
func binlog(x *sql.Examination, set map[string]string, synced bool) {
	if set["binlog_format"] == "STATEMENT" {
		x.Add(locks.Problem, "binlog_format", "is STATEMENT",
			"the server refuses every step of golock's, which read committed data",
			setGlobal("binlog_format=ROW or MIXED"))
	}
	if set["sync_binlog"] != "1" {
		x.Add(locks.Note, "sync_binlog", "is "+set["sync_binlog"]+" on a server with a binary log",
			"a crash of the machine can undo what was committed last, or leave replicas without it",
			setGlobal("sync_binlog=1"))
	}
	if !synced {
		x.Add(locks.Note, "replicas", "if there are any, commits do not wait for them",
			"one that takes over may lack the last grants: "+x.Forgotten(),
			"semi-synchronous replication, if a replica may take over")
	}
}

// examineEngine looks at how the table is kept, if it exists: somebody may have made it by hand.
func examineEngine(ctx context.Context, x *sql.Examination) {
	rows, err := x.Ask(ctx, "SHOW CREATE TABLE "+x.Table)
	if err != nil || len(rows) != 1 || len(rows[0]) != 1 || len(rows[0][0]) < 2 {
		return
	}
	if text := rows[0][0][1]; !strings.Contains(text, "ENGINE=InnoDB") {
		_, name, _ := strings.Cut(text, "ENGINE=")
		name, _, _ = strings.Cut(name, " ")
		x.Add(locks.Problem, "engine", "the table's is "+locks.Printable(name, 30),
			"it has no transactions: two may be let in at once", "ALTER TABLE "+x.Table+" ENGINE=InnoDB")
	}
}
