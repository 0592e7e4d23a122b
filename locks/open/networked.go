//go:build !lean

package open

import (
	"golock/locks"
	"golock/locks/redis"
	"golock/locks/sql/mysql"
	"golock/locks/sql/postgres"
)

// Lean reports whether the clients of servers are missing in this program.
const Lean = false

func openRedis(address string) (locks.Store, error)    { return store(redis.Open(address)) }
func openMySQL(address string) (locks.Store, error)    { return store(mysql.Open(address)) }
func openPostgres(address string) (locks.Store, error) { return store(postgres.Open(address)) }

// store keeps a nil pointer from becoming a store that is not nil.
func store[S locks.Store](s S, err error) (locks.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
