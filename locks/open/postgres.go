//go:build !nopostgres

package open

import (
	"golock/locks"
	"golock/locks/sql/postgres"
)

func postgresEngines() []engine {
	return []engine{
		{scheme: "postgres", aliases: []string{"pgsql"}, open: openPostgres},
		{scheme: "postgresql", open: openPostgres},
	}
}

func openPostgres(address string) (locks.Store, error) {
	s, err := postgres.Open(address)
	if err != nil {
		return nil, err
	}
	return s, nil
}
