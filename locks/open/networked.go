//go:build !lean

package open

import (
	"golock/locks"
	"golock/locks/etcd"
	"golock/locks/redis"
	"golock/locks/sql/mysql"
	"golock/locks/sql/postgres"
)

func openRedis(address string) (locks.Store, error)    { return redis.Open(address) }
func openMySQL(address string) (locks.Store, error)    { return mysql.Open(address) }
func openPostgres(address string) (locks.Store, error) { return postgres.Open(address) }
func openEtcd(address string) (locks.Store, error)     { return etcd.Open(address) }
