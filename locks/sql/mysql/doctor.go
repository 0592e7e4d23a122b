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
// table before it finds that there is nothing to make it like.
func (d dialect) MayCreate(ctx context.Context, ask sql.Ask, table string) (bool, error) {
	ref, err := locks.NewRef("golock doctor")
	if err != nil {
		return false, err
	}
	nothing := fmt.Sprintf("%s_%x", table, ref.ID[:6])
	_, err = ask(ctx, "CREATE TABLE "+d.Quote(table)+" LIKE "+d.Quote(nothing))
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
func (dialect) Examine(ctx context.Context, ask sql.Ask, around sql.Surroundings) (found []locks.Finding) {
	add := func(f locks.Finding) { found = append(found, f) }
	if rows, err := ask(ctx, "SELECT VERSION()"); err == nil {
		add(version(rows[0][0][0]))
	}
	rows, err := ask(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ("+settings+")")
	if err != nil {
		add(locks.Finding{Level: locks.Note, Subject: "settings", What: "cannot be seen: " + err.Error(), Why: "whether the server keeps what it has committed stays open"})
		return found
	}
	set := sql.Settings(rows)
	on := func(name string) bool { return set[name] == "ON" || set[name] == "1" }
	add(flush(set["innodb_flush_log_at_trx_commit"], around))
	if on("read_only") || on("super_read_only") || on("innodb_read_only") {
		f := locks.Finding{Level: locks.Problem, Subject: "read_only", What: "the server is read-only, perhaps a replica", Why: "no slot can be had there", Fix: "name the primary server"}
		if around.Table != "" && !on("super_read_only") && !on("innodb_read_only") {
			f.Why += ", unless this user may write all the same (see rehearsal)"
		}
		add(f)
	}
	if on("log_bin") {
		binlog(set, on, around, add)
	}
	if on("wsrep_on") {
		add(locks.Finding{
			Level: locks.Note, Subject: "Galera", What: "the server is a node of a cluster",
			Why: "each time another node answers it counts as a server that has just come back, and nothing is granted for the quarantine", Fix: "name one node in the URL, the others after it only for when that fails",
		})
	}
	if around.Table != "" {
		engine(ctx, ask, around.Table, add)
	}
	used := 0
	if rows, err := ask(ctx, "SHOW GLOBAL STATUS LIKE 'Threads_connected'"); err == nil {
		used, _ = strconv.Atoi(sql.Settings(rows)["threads_connected"])
	}
	most, _ := strconv.Atoi(set["max_connections"])
	add(sql.Room(most, used, around.Waiters))
	if n, _ := strconv.Atoi(set["max_user_connections"]); n > 0 && n < around.Waiters+2 {
		add(locks.Finding{
			Level: locks.Note, Subject: "max_user_connections", What: fmt.Sprintf("one user may have %d connections, and up to %d waiters of each name keep one", n, around.Waiters),
			Why: "a queue can use them up: renewals of the same user fail then", Fix: "a larger max_user_connections, or a smaller ?waiters= in the URL",
		})
	}
	return found
}

func version(text string) locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "version", What: "MySQL " + locks.Printable(text, 60)}
	least := [2]int{5, 7}
	if strings.Contains(text, "MariaDB") {
		f.What, least = locks.Printable(text, 60), [2]int{10, 5}
	}
	var major, minor int
	if n, _ := fmt.Sscanf(text, "%d.%d", &major, &minor); n == 2 && (major < least[0] || major == least[0] && minor < least[1]) {
		f.Level, f.Why, f.Fix = locks.Problem, fmt.Sprintf("golock is made for %d.%d and later", least[0], least[1]), "a newer server"
	}
	return f
}

func flush(value string, around sql.Surroundings) locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "innodb_flush_log_at_trx_commit", What: "is " + value + ": what was committed outlives a crash"}
	switch value {
	case "0", "2":
		f.Level, f.What = locks.Problem, "is "+value+": a crash loses about the last second"
		f.Why = around.Forgotten()
		f.Fix = "SET GLOBAL innodb_flush_log_at_trx_commit=1 and the same in the server's configuration"
	}
	return f
}

// binlog looks at what only servers with a binary log have.
func binlog(set map[string]string, on func(string) bool, around sql.Surroundings, add func(locks.Finding)) {
	if set["binlog_format"] == "STATEMENT" {
		add(locks.Finding{
			Level: locks.Problem, Subject: "binlog_format", What: "is STATEMENT", Why: "the server refuses every step of golock's, which read committed data", Fix: "SET GLOBAL binlog_format=ROW or MIXED and the same in the server's configuration",
		})
	}
	if set["sync_binlog"] != "1" {
		add(locks.Finding{
			Level: locks.Note, Subject: "sync_binlog", What: "is " + set["sync_binlog"] + " on a server with a binary log", Why: "a crash of the machine can undo what was committed last, or leave replicas without it",
			Fix: "SET GLOBAL sync_binlog=1 and the same in the server's configuration",
		})
	}
	if !on("rpl_semi_sync_master_enabled") && !on("rpl_semi_sync_source_enabled") {
		add(locks.Finding{
			Level: locks.Note, Subject: "replicas", What: "if there are any, commits do not wait for them", Why: "one that takes over may lack the last grants: " + around.Forgotten(),
			Fix: "semi-synchronous replication, if a replica may take over",
		})
	}
}

// engine looks at how the table is kept: somebody may have made it by hand.
func engine(ctx context.Context, ask sql.Ask, table string, add func(locks.Finding)) {
	rows, err := ask(ctx, "SHOW CREATE TABLE "+table)
	if err != nil || len(rows) != 1 || len(rows[0]) != 1 || len(rows[0][0]) < 2 {
		return
	}
	if text := rows[0][0][1]; !strings.Contains(text, "ENGINE=InnoDB") {
		_, name, _ := strings.Cut(text, "ENGINE=")
		name, _, _ = strings.Cut(name, " ")
		add(locks.Finding{
			Level: locks.Problem, Subject: "engine", What: "the table's is " + locks.Printable(name, 30), Why: "it has no transactions: two may be let in at once", Fix: "ALTER TABLE " + table + " ENGINE=InnoDB",
		})
	}
}
