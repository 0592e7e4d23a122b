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
		" UNION ALL SELECT 'limit of user',rolconnlimit::text FROM pg_roles WHERE rolname=current_user")
	if err != nil {
		return
	}
	number := func(name string) int { n, _ := strconv.Atoi(set[name]); return n }
	x.Version("PostgreSQL ", set["server_version"], "12")
	x.Judge("recovery", locks.Row{
		When: set["recovery"] == "true", Level: locks.Problem,
		What: "the server is a standby",
		Why:  "nothing can be written there",
		Fix:  "name the primary server, or all of them separated by commas",
	})
	durable(x, set)
	standbys(x, set["synchronous_standby_names"], number)
	most := number("max_connections") - number("superuser_reserved_connections")
	if n, err := strconv.Atoi(set["limit of user"]); err == nil && n >= 0 {
		most = min(most, n)
	}
	x.Room(most, number("used"))
}

// durable judges what survives a crash. It ignores synchronous_commit, which golock sets in each of its
// transactions.
func durable(x *sql.Examination, set map[string]string) {
	const what = "is off: a crash of the machine can lose what was committed, or damage the table"
	for _, name := range []string{"fsync", "full_page_writes"} {
		isOff := set[name] == "off"
		x.Judge(name, locks.Row{
			When: isOff, Level: locks.Problem, What: what,
			Why: x.Forgotten(),
			Fix: name + " = on in postgresql.conf, and a reload",
		})
		if isOff {
			return
		}
	}
	x.OK("fsync", "is on, and golock's grants wait for it whatever synchronous_commit is: they outlive a crash")
}

// standbys judges whether golock's commits wait for a standby. They ask for it, whatever synchronous_commit is.
// A user without pg_read_all_stats sees the standbys, but not their state.
func standbys(x *sql.Examination, names string, number func(string) int) {
	connected := number("standbys")
	what := fmt.Sprintf("%d connected", connected)
	if away := number("away"); away > 0 {
		what += fmt.Sprintf(", %d away", away)
		connected += away
	}
	wanted := locks.Printable(names, 60)
	x.Judge("standbys",
		locks.Row{
			When: connected == 0 && names == "", Level: locks.OK,
			What: "none is connected, and no commit would wait for one; those that are away without a slot cannot be seen",
		},
		locks.Row{
			When: names == "", Level: locks.Problem,
			What: what + ", and commits do not wait for them (synchronous_standby_names is empty)",
			Why:  locks.TwoServers,
			Fix: "synchronous_standby_names = 'ANY 1 (*)', or the names of those that may take over, and a " +
				"reload; or let nobody promote a standby before the old primary server is stopped",
		},
		locks.Row{
			When: number("awaited") > 0, Level: locks.OK,
			What: fmt.Sprintf("%s; grants and renewals wait for synchronous_standby_names (%s)", what, wanted),
		},
		locks.Row{
			When: number("unseen") > 0, Level: locks.Note,
			What: what + "; commits wait for synchronous_standby_names (" + wanted +
				"), and this user cannot see whether those answer",
			Why: "if none does, no slot can be taken",
			Fix: "GRANT pg_read_all_stats to this user, to have golock doctor look",
		},
		locks.Row{
			When: true, Level: locks.Problem,
			What: what + ", and none that synchronous_standby_names (" + wanted + ") asks for",
			Why:  "commits wait for ever: no slot can be taken",
			Fix:  "connect a standby with such an application_name",
		},
	)
}
