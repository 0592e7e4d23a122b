package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"golock/locks"
	"golock/locks/sql"
)

// MayCreate implements sql.Dialect.
func (dialect) MayCreate(ctx context.Context, ask sql.Ask, table string) (bool, error) {
	schema := "current_schema()"
	if name, _, ok := strings.Cut(table, "."); ok {
		schema = "'" + strings.ReplaceAll(name, "'", "''") + "'"
	}
	rows, err := ask(ctx, "SELECT has_schema_privilege("+schema+",'CREATE')")
	if err != nil {
		return false, err
	}
	if len(rows) != 1 || len(rows[0]) != 1 {
		return false, errors.New("no answer")
	}
	return rows[0][0][0] == "t", nil
}

// Examine implements sql.Dialect.
func (dialect) Examine(ctx context.Context, ask sql.Ask, around sql.Surroundings) (found []locks.Finding) {
	add := func(f locks.Finding) { found = append(found, f) }
	rows, err := ask(ctx, "SELECT name,setting FROM pg_settings WHERE name IN ('server_version','server_version_num','fsync','full_page_writes','synchronous_standby_names','max_connections','superuser_reserved_connections','server_encoding')"+
		" UNION ALL SELECT 'recovery',pg_is_in_recovery()::text"+
		" UNION ALL SELECT 'used',count(*)::text FROM pg_stat_activity WHERE backend_type='client backend'"+
		" UNION ALL SELECT 'replicas',count(*)::text FROM pg_stat_replication"+
		" UNION ALL SELECT 'own',rolconnlimit::text FROM pg_roles WHERE rolname=current_user")
	if err != nil {
		add(locks.Finding{Level: locks.Note, Subject: "settings", What: "cannot be seen: " + err.Error(), Why: "whether the server keeps what it has committed stays open"})
		return found
	}
	set := sql.Settings(rows)
	number := func(name string) int { n, _ := strconv.Atoi(set[name]); return n }
	version := locks.Finding{Level: locks.OK, Subject: "version", What: "PostgreSQL " + locks.Printable(set["server_version"], 60)}
	if n := number("server_version_num"); n > 0 && n < 120000 {
		version.Level, version.Why, version.Fix = locks.Problem, "golock is made for 12 and later", "a newer server"
	}
	add(version)
	if set["recovery"] == "true" {
		add(locks.Finding{Level: locks.Problem, Subject: "recovery", What: "the server is a standby", Why: "nothing can be written there", Fix: "name the primary server, or all of them separated by commas"})
	}
	add(durable(set, around))
	if number("replicas") > 0 && set["synchronous_standby_names"] == "" {
		add(locks.Finding{
			Level: locks.Note, Subject: "replicas", What: set["replicas"] + " connected, and commits do not wait for them", Why: "one that takes over may lack the last grants: " + around.Forgotten(),
			Fix: "synchronous_standby_names, if a standby may take over",
		})
	}
	most := number("max_connections") - number("superuser_reserved_connections")
	if n, err := strconv.Atoi(set["own"]); err == nil && n >= 0 && n < most {
		most = n
	}
	add(sql.Room(most, number("used"), around.Waiters))
	if around.Table != "" {
		rights(ctx, ask, around.Table, add)
	}
	return found
}

// durable judges what a crash leaves. Which commits wait for the disk golock says
// in each of its own (synchronous_commit).
func durable(set map[string]string, around sql.Surroundings) locks.Finding {
	for _, name := range []string{"fsync", "full_page_writes"} {
		if set[name] == "off" {
			return locks.Finding{
				Level: locks.Problem, Subject: name, What: "is off: a crash of the machine can lose what was committed, or damage the table",
				Why: around.Forgotten(),
				Fix: name + " = on in postgresql.conf, and a reload",
			}
		}
	}
	return locks.Finding{Level: locks.OK, Subject: "fsync", What: "is on, and golock's grants wait for it whatever synchronous_commit is: they outlive a crash"}
}

// rights names those that are missing on the table.
func rights(ctx context.Context, ask sql.Ask, table string, add func(locks.Finding)) {
	text := "'" + strings.ReplaceAll(table, "'", "''") + "'"
	var missing []string
	for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
		rows, err := ask(ctx, "SELECT has_table_privilege("+text+",'"+right+"')")
		if err == nil && len(rows) == 1 && len(rows[0]) == 1 && rows[0][0][0] == "f" {
			missing = append(missing, right)
		}
	}
	if len(missing) > 0 {
		list := strings.Join(missing, ", ")
		add(locks.Finding{Level: locks.Problem, Subject: "rights", What: "missing on the table: " + list, Why: "steps of a run fail", Fix: "GRANT " + list + " ON " + table + " TO this user"})
	}
}
