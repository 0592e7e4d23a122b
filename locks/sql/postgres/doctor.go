package postgres

import (
	"context"
	"strconv"

	"golock/locks"
	"golock/locks/sql"
)

func examine(ctx context.Context, x *sql.Examination) {
	set, err := x.Settings(ctx, "SELECT name,setting FROM pg_settings WHERE name IN ('server_version',"+
		"'fsync','full_page_writes','synchronous_standby_names','max_connections','superuser_reserved_connections')"+
		" UNION ALL SELECT 'recovery',pg_is_in_recovery()::text"+
		" UNION ALL SELECT 'used',count(*)::text FROM pg_stat_activity WHERE backend_type='client backend'"+
		" UNION ALL SELECT 'replicas',count(*)::text FROM pg_stat_replication"+
		" UNION ALL SELECT 'own',rolconnlimit::text FROM pg_roles WHERE rolname=current_user")
	if err != nil {
		return
	}
	number := func(name string) int { n, _ := strconv.Atoi(set[name]); return n }
	x.Version("PostgreSQL ", set["server_version"], "12")
	if set["recovery"] == "true" {
		x.Add(locks.Problem, "recovery", "the server is a standby", "nothing can be written there",
			"name the primary server, or all of them separated by commas")
	}
	durable(x, set)
	if number("replicas") > 0 && set["synchronous_standby_names"] == "" {
		x.Add(locks.Note, "replicas", set["replicas"]+" connected, and commits do not wait for them",
			"one that takes over may lack the last grants: "+x.Forgotten(),
			"synchronous_standby_names, if a standby may take over")
	}
	most := number("max_connections") - number("superuser_reserved_connections")
	if n, err := strconv.Atoi(set["own"]); err == nil && n >= 0 {
		most = min(most, n)
	}
	x.Room(most, number("used"))
}

// durable judges what a crash leaves. Which commits wait for the disk golock says
// in each of its own (synchronous_commit).
func durable(x *sql.Examination, set map[string]string) {
	for _, name := range []string{"fsync", "full_page_writes"} {
		if set[name] == "off" {
			x.Add(locks.Problem, name, "is off: a crash of the machine can lose what was committed, or damage the table",
				x.Forgotten(), name+" = on in postgresql.conf, and a reload")
			return
		}
	}
	x.OK("fsync", "is on, and golock's grants wait for it whatever synchronous_commit is: they outlive a crash")
}
