package mysql

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/sql"
)

func examine(ctx context.Context, x *sql.Examination) {
	set, err := x.Settings(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ("+ // it shows those that it has
		"'version','innodb_flush_log_at_trx_commit','log_bin','sync_binlog','binlog_format','read_only',"+
		"'super_read_only','max_connections','max_user_connections','wsrep_on','innodb_read_only',"+
		"'rpl_semi_sync_master_enabled','rpl_semi_sync_source_enabled','rpl_semi_sync_master_timeout',"+
		"'rpl_semi_sync_source_timeout');SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected','Slaves_connected')")
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
		binlog(x, set)
	}
	if on("log_bin") && !on("wsrep_on") {
		replicas(ctx, x, set, on("rpl_semi_sync_master_enabled") || on("rpl_semi_sync_source_enabled"))
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

// binlog looks at what only servers with a binary log have.
func binlog(x *sql.Examination, set map[string]string) {
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
}

// longWait is how long commits must wait for a replica at least, so that no lease is renewed
// without one: no attempt lasts longer.
const longWait = time.Hour

// replicas judges whether commits wait for a replica. Semi-synchronous ones do so for a time.
func replicas(ctx context.Context, x *sql.Examination, set map[string]string, semiSync bool) {
	const subject = "replicas"
	count, err := countReplicas(ctx, x, set)
	what := fmt.Sprintf("%d connected", count)
	level := locks.Problem
	if err != nil {
		what, level = "whether there are any cannot be seen ("+err.Error()+")", locks.Note
	}
	variable := "rpl_semi_sync_source_timeout"
	if _, old := set["rpl_semi_sync_master_timeout"]; old {
		variable = "rpl_semi_sync_master_timeout"
	}
	ms, _ := strconv.ParseInt(set[variable], 10, 64)
	wait := time.Duration(ms) * time.Millisecond
	fix := "semi-synchronous replication with a " + variable + " of days; or let nobody promote a replica before the old " +
		"primary server is stopped"
	switch {
	case semiSync && wait >= longWait:
		x.OK(subject, what+"; commits wait for one of them")
	case err == nil && count == 0:
		x.OK(subject, "none is connected; those that are away cannot be seen")
	case semiSync:
		x.Add(level, subject, fmt.Sprintf("%s, and commits wait for one of them, but for %v at most (%s)", what, wait, variable),
			"after that "+locks.TwoServers, fix)
	default:
		x.Add(level, subject, what+", and commits do not wait for them", locks.TwoServers, fix)
	}
}

// countReplicas counts the replicas that are connected: in the status of MariaDB, else in a list
// for which MySQL wants a right.
func countReplicas(ctx context.Context, x *sql.Examination, set map[string]string) (int, error) {
	if count, ok := set["slaves_connected"]; ok {
		return strconv.Atoi(count)
	}
	rows, err := x.Ask(ctx, "SHOW REPLICAS")
	if err != nil { // before 8.0.22, or without the right
		rows, err = x.Ask(ctx, "SHOW SLAVE HOSTS")
	}
	if err != nil {
		return 0, err
	}
	return len(rows[0]), nil
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
