//go:build integration

package sql_test

import (
	"context"
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// defaults are what administrators set for everybody: none of it may decide
// what a step reads and whether it counts. Settings of PostgreSQL that do not
// concern each other come together, but in the deep run.
func defaults(f family) []string {
	if f.name == "postgres" && !testkit.Deep() {
		return []string{
			"default_transaction_isolation='repeatable read',enable_indexscan=off,timezone='Asia/Tokyo'",
			"default_transaction_isolation='serializable',default_transaction_deferrable=on,standard_conforming_strings=off",
			"synchronous_commit=off,transform_null_equals=on,default_transaction_read_only=on",
			"session_replication_role=replica,statement_timeout=500",
		}
	}
	if f.name == "postgres" {
		return []string{
			"default_transaction_isolation='repeatable read'",
			"default_transaction_isolation='serializable'",
			"default_transaction_read_only=on",
			"synchronous_commit=off",
			"default_transaction_deferrable=on",
			"session_replication_role=replica",
			"standard_conforming_strings=off",
			"transform_null_equals=on",
			"timezone='Asia/Tokyo'",
			"statement_timeout=500",
			"enable_indexscan=off",
		}
	}
	if sqltest.MySQL() {
		return []string{
			"transaction_isolation='READ-COMMITTED'",
			"transaction_isolation='SERIALIZABLE'",
			"autocommit=0,transaction_isolation='SERIALIZABLE'",
			"transaction_read_only=1",
			"completion_type='CHAIN'",
			"completion_type='RELEASE'",
			"sql_select_limit=1",
			"sql_safe_updates=1,sql_big_selects=0,max_join_size=1,unique_checks=0",
			"sql_mode='ANSI,PAD_CHAR_TO_FULL_LENGTH'",
			"max_execution_time=500,time_zone='+09:00',default_storage_engine=MyISAM",
		}
	}
	return []string{
		"tx_isolation='READ-COMMITTED'",
		"tx_isolation='SERIALIZABLE'",
		"autocommit=0",
		"autocommit=0,tx_isolation='SERIALIZABLE'",
		"tx_read_only=1",
		"completion_type='CHAIN'",
		"completion_type='RELEASE'",
		"sql_select_limit=1",
		"sql_safe_updates=1,sql_big_selects=0,max_join_size=1,unique_checks=0",
		"sql_mode='EMPTY_STRING_IS_NULL,NO_BACKSLASH_ESCAPES'",
		"sql_mode='ORACLE,ANSI_QUOTES,SIMULTANEOUS_ASSIGNMENT'",
		"max_statement_time=0.5,time_zone='+09:00',default_storage_engine=MyISAM",
	}
}

// Whatever transactions are by default: never are more inside than the rule allows, and nobody is
// refused for it. MariaDB keeps both tables where there are
// transactions.
func TestDefaultsOfTransactions(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		server := f.shared(t)
		if f.name == "mariadb" { // whose setting is for all
			server = f.start(t)
		}
		for _, setting := range defaults(f) {
			t.Run(setting, func(t *testing.T) {
				b := &base{f, server, server.NewDatabase(t)}
				if f.name == "postgres" {
					for one := range strings.SplitSeq(setting, ",") {
						b.exec(t, "ALTER DATABASE "+b.name+" SET "+one)
					}
				} else {
					b.exec(t, "SET GLOBAL init_connect=\"SET SESSION "+setting+"\"")
				}
				locktest.Chaos(t, func() locks.Store { return neverRefusing{b.store(t), t} }, nil)
				for range 2 {
					if _, err := b.store(t).Join(context.Background(), locktest.NewRequest(t, "listed", locktest.Limit(2))); err != nil {
						t.Fatal(err)
					}
				}
				if listed := locktest.List(t, b.store(t), "listed"); len(listed) != 2 {
					t.Errorf("two hold, listed are %+v", listed)
				}
				if f.name == "postgres" {
					return
				}
				const engines = "SELECT TABLE_NAME,ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE()"
				for _, r := range b.exec(t, engines) {
					if r[1] != "InnoDB" {
						t.Errorf("%s is kept in %s", r[0], r[1])
					}
				}
			})
		}
	})
}
