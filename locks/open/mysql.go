//go:build !nomysql

package open

import (
	"golock/locks"
	"golock/locks/sql/mysql"
)

func mysqlEngines() []engine {
	return []engine{
		{scheme: "mysql", open: openMySQL},
		{scheme: "mariadb", open: openMySQL},
	}
}

func openMySQL(address string) (locks.Store, error) {
	s, err := mysql.Open(address)
	if err != nil {
		return nil, err
	}
	return s, nil
}
