//go:build !nomysql

package open

import (
	"golock/locks"
	"golock/locks/sql/mysql"
)

func mysqlEngines() []engine {
	return []engine{
		{scheme: "mysql", form: "mysql://USER@HOST/DATABASE", open: openMySQL},
		{scheme: "mariadb", form: "mariadb://USER@HOST/DATABASE", open: openMySQL},
	}
}

func openMySQL(address string) (locks.Store, error) {
	s, err := mysql.Open(address)
	if err != nil {
		return nil, err
	}
	return s, nil
}
