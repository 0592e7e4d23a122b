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
func (dialect) Examine(ctx context.Context, ask sql.Ask, around sql.Surroundings, found *locks.Findings) {
	rows, err := ask(ctx, "SELECT name,setting FROM pg_settings WHERE name IN ('server_version','server_version_num','fsync','full_page_writes','synchronous_standby_names','max_connections','superuser_reserved_connections','server_encoding')"+
		" UNION ALL SELECT 'recovery',pg_is_in_recovery()::text"+
		" UNION ALL SELECT 'used',count(*)::text FROM pg_stat_activity WHERE backend_type='client backend'"+
		" UNION ALL SELECT 'replicas',count(*)::text FROM pg_stat_replication"+
		" UNION ALL SELECT 'own',rolconnlimit::text FROM pg_roles WHERE rolname=current_user")
	if err != nil {
		found.Add(locks.Note, "settings", "cannot be seen: "+err.Error(), "whether the server keeps what it has committed stays open", "")
		return
	}
	set := sql.Settings(rows)
	number := func(name string) int { n, _ := strconv.Atoi(set[name]); return n }
	version := "PostgreSQL " + locks.Printable(set["server_version"], 60)
	if n := number("server_version_num"); n > 0 && n < 120000 {
		found.Add(locks.Problem, "version", version, "golock is made for 12 and later", "a newer server")
	} else {
		found.OK("version", version)
	}
	if set["recovery"] == "true" {
		found.Add(locks.Problem, "recovery", "the server is a standby", "nothing can be written there", "name the primary server, or all of them separated by commas")
	}
	durable(found, set, around)
	if number("replicas") > 0 && set["synchronous_standby_names"] == "" {
		found.Add(locks.Note, "replicas", set["replicas"]+" connected, and commits do not wait for them", "one that takes over may lack the last grants: "+around.Forgotten(),
			"synchronous_standby_names, if a standby may take over")
	}
	most := number("max_connections") - number("superuser_reserved_connections")
	if n, err := strconv.Atoi(set["own"]); err == nil && n >= 0 && n < most {
		most = n
	}
	sql.Room(found, most, number("used"), around.Waiters)
	if around.Table != "" {
		rights(ctx, found, ask, around.Table)
	}
}

// durable judges what a crash leaves. Which commits wait for the disk golock says
// in each of its own (synchronous_commit).
func durable(found *locks.Findings, set map[string]string, around sql.Surroundings) {
	for _, name := range []string{"fsync", "full_page_writes"} {
		if set[name] == "off" {
			found.Add(locks.Problem, name, "is off: a crash of the machine can lose what was committed, or damage the table", around.Forgotten(),
				name+" = on in postgresql.conf, and a reload")
			return
		}
	}
	found.OK("fsync", "is on, and golock's grants wait for it whatever synchronous_commit is: they outlive a crash")
}

// rights names those that are missing on the table.
func rights(ctx context.Context, found *locks.Findings, ask sql.Ask, table string) {
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
		found.Add(locks.Problem, "rights", "missing on the table: "+list, "steps of a run fail", "GRANT "+list+" ON "+table+" TO this user")
	}
}
