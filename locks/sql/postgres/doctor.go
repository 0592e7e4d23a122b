package postgres

import (
	"context"
	"fmt"
	"strconv"

	"golock/locks"
	"golock/locks/sql"
)

func examine(ctx context.Context, x *sql.Examination) {
	set, err := x.Settings(ctx, "SELECT name,setting FROM pg_settings WHERE name IN ('server_version',"+
		"'fsync','full_page_writes','synchronous_standby_names','max_connections','superuser_reserved_connections')"+
		" UNION ALL SELECT 'recovery',pg_is_in_recovery()::text"+
		" UNION ALL SELECT 'used',count(*)::text FROM pg_stat_activity WHERE backend_type='client backend'"+
		" UNION ALL SELECT 'standbys',count(*)::text FROM pg_stat_replication"+
		" UNION ALL SELECT 'unseen',count(*)::text FROM pg_stat_replication WHERE sync_state IS NULL"+
		" UNION ALL SELECT 'awaited',count(*)::text FROM pg_stat_replication WHERE sync_state IN ('sync','quorum')"+
		" UNION ALL SELECT 'away',count(*)::text FROM pg_replication_slots WHERE slot_type='physical' AND NOT active"+
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
	standbys(x, set["synchronous_standby_names"], number)
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

// standbys judges whether commits wait for a standby. golock's ask for it, whatever
// synchronous_commit is. A user without pg_read_all_stats sees the standbys, but not their state.
func standbys(x *sql.Examination, names string, number func(string) int) {
	const subject = "standbys"
	connected, awaited := number("standbys"), number("awaited")
	what := fmt.Sprintf("%d connected", connected)
	if away := number("away"); away > 0 {
		what += fmt.Sprintf(", %d away", away)
		connected += away
	}
	switch {
	case connected == 0 && names == "":
		x.OK(subject, "none is connected, and no commit would wait for one; those that are away without a slot cannot be seen")
	case names == "":
		x.Add(locks.Problem, subject, what+", and commits do not wait for them (synchronous_standby_names is empty)",
			locks.TwoServers, "synchronous_standby_names = 'ANY 1 (*)', or the names of those that may take over, and a "+
				"reload; or let nobody promote a standby before the old primary server is stopped")
	case awaited > 0:
		x.OK(subject, fmt.Sprintf("%s; grants and renewals wait for synchronous_standby_names (%s)",
			what, locks.Printable(names, 60)))
	case number("unseen") > 0:
		x.Add(locks.Note, subject, what+"; commits wait for synchronous_standby_names ("+locks.Printable(names, 60)+
			"), and this user cannot see whether those answer",
			"if none does, no slot can be had", "GRANT pg_read_all_stats to this user, to have golock doctor look")
	default:
		x.Add(locks.Problem, subject, what+", and none that synchronous_standby_names ("+locks.Printable(names, 60)+") asks for",
			"commits wait for ever: no slot can be had", "connect a standby with such an application_name")
	}
}
