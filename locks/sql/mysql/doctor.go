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
	isOn := func(name string) bool { return set[name] == "ON" || set[name] == "1" }
	examineServer(x, set, isOn)
	if isOn("log_bin") && !isOn("wsrep_on") {
		replicas(ctx, x, set, isOn("rpl_semi_sync_master_enabled") || isOn("rpl_semi_sync_source_enabled"))
	}
	x.Judge("Galera", locks.Row{
		When: isOn("wsrep_on"), Level: locks.Note,
		What: "the server is a node of a cluster",
		Why: "a node that answers for the first time counts as a server that has just come back, " +
			"and nothing is granted for the quarantine",
		Fix: "name one node in the URL, the others after it only for when that fails",
	})
	examineEngine(ctx, x)
	examineConnections(x, set)
}

// examineServer examines what a crash of the server leaves, and whether it takes writes.
func examineServer(x *sql.Examination, set map[string]string, isOn func(string) bool) {
	flush, isLocked := set[flushSetting], isOn("super_read_only") || isOn("innodb_read_only")
	const readOnly = "the server is read-only, perhaps a replica"
	x.Judge(flushSetting,
		locks.Row{
			When: flush == "0" || flush == "2", Level: locks.Problem,
			What: "is " + flush + ": a crash loses about the last second",
			Why:  x.Forgotten(),
			Fix:  setGlobal(flushSetting + "=1"),
		},
		locks.Row{When: true, Level: locks.OK, What: "is " + flush + ": what was committed outlives a crash"},
	)
	x.Judge("read_only",
		locks.Row{
			When: isLocked, Level: locks.Problem, What: readOnly,
			Why: "no slot can be taken there", Fix: "name the primary server",
		},
		locks.Row{
			When: isOn("read_only"), Level: locks.Problem, What: readOnly,
			Why: "no slot can be taken there, unless this user may write nevertheless", Fix: "name the primary server",
		},
	)
	hasBinlog := isOn("log_bin")
	x.Judge("binlog_format", locks.Row{
		When: hasBinlog && set["binlog_format"] == "STATEMENT", Level: locks.Problem,
		What: "is STATEMENT",
		Why:  "the server refuses every step of golock's, which read committed data",
		Fix:  setGlobal("binlog_format=ROW or MIXED"),
	})
	x.Judge("sync_binlog", locks.Row{
		When: hasBinlog && set["sync_binlog"] != "1", Level: locks.Note,
		What: "is " + set["sync_binlog"] + " on a server with a binary log",
		Why:  "a crash of the machine can undo what was committed last, or leave replicas without it",
		Fix:  setGlobal("sync_binlog=1"),
	})
}

// examineConnections examines how many connections the server allows.
func examineConnections(x *sql.Examination, set map[string]string) {
	number := func(name string) int { n, _ := strconv.Atoi(set[name]); return n }
	x.Room(number("max_connections"), number("threads_connected"))
	ofUser := number("max_user_connections")
	x.Judge("max_user_connections", locks.Row{
		When: ofUser > 0 && ofUser < x.Waiters()+2, Level: locks.Note,
		What: fmt.Sprintf("one user may have %d connections, and up to %d waiters of each name keep one",
			ofUser, x.Waiters()),
		Why: "a queue can use them up; then renewals of the same user fail",
		Fix: "a larger max_user_connections, or a smaller ?waiters= in the URL",
	})
}

// flushSetting says when a commit is written to the disk.
const flushSetting = "innodb_flush_log_at_trx_commit"

func setGlobal(setting string) string {
	return "SET GLOBAL " + setting + " and the same in the server's configuration"
}

// longWait is how long commits must wait for a replica at least, so that no lease is renewed
// without one: an attempt to renew takes less time than that.
const longWait = time.Hour

// replicas judges whether commits wait for a replica. With semi-synchronous replication they do, for a limited
// time.
func replicas(ctx context.Context, x *sql.Examination, set map[string]string, isSemiSync bool) {
	count, err := countReplicas(ctx, x, set)
	what := fmt.Sprintf("%d connected", count)
	level := locks.Problem
	if err != nil {
		what, level = "whether there are any cannot be seen ("+err.Error()+")", locks.Note
	}
	variable := "rpl_semi_sync_source_timeout"
	if _, isOld := set["rpl_semi_sync_master_timeout"]; isOld {
		variable = "rpl_semi_sync_master_timeout"
	}
	ms, _ := strconv.ParseInt(set[variable], 10, 64)
	wait := time.Duration(ms) * time.Millisecond
	fix := "semi-synchronous replication with a " + variable + " of days; or let nobody promote a replica before the " +
		"old primary server is stopped"
	x.Judge("replicas",
		locks.Row{
			When: isSemiSync && wait >= longWait, Level: locks.OK,
			What: what + "; commits wait for one of them",
		},
		locks.Row{
			When: err == nil && count == 0, Level: locks.OK,
			What: "none is connected; those that are away cannot be seen",
		},
		locks.Row{
			When: isSemiSync, Level: level,
			What: fmt.Sprintf("%s, and commits wait for one of them, but for %v at most (%s)", what, wait, variable),
			Why:  "after that " + locks.TwoServers,
			Fix:  fix,
		},
		locks.Row{
			When: true, Level: level, What: what + ", and commits do not wait for them", Why: locks.TwoServers, Fix: fix,
		},
	)
}

// countReplicas counts the replicas that are connected. MariaDB's status has their number. MySQL has a list of
// them, for which it wants a right.
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

// examineEngine judges the engine of the table, if the table exists: somebody may have made it by hand.
func examineEngine(ctx context.Context, x *sql.Examination) {
	rows, err := x.Ask(ctx, "SHOW CREATE TABLE "+x.Table)
	if err != nil || len(rows) != 1 || len(rows[0]) != 1 || len(rows[0][0]) < 2 {
		return
	}
	text := rows[0][0][1]
	_, name, _ := strings.Cut(text, "ENGINE=")
	name, _, _ = strings.Cut(name, " ")
	x.Judge("engine", locks.Row{
		When: !strings.Contains(text, "ENGINE=InnoDB"), Level: locks.Problem,
		What: "the table's is " + locks.Printable(name, 30),
		Why:  "it has no transactions: two may run at once",
		Fix:  "ALTER TABLE " + x.Table + " ENGINE=InnoDB",
	})
}
