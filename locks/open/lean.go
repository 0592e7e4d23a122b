//go:build lean

package open

import "golock/locks"

// To initialise clients of servers at every start costs more than a local lock.
func openRedis(string) (locks.Store, error)    { return nil, ErrNotLinked }
func openMySQL(string) (locks.Store, error)    { return nil, ErrNotLinked }
func openPostgres(string) (locks.Store, error) { return nil, ErrNotLinked }
