//go:build lean

package open

import "golock/locks"

// This build has no clients of servers, because their initialisation would cost more at every start
// than a local lock.
func openRedis(string) (locks.Store, error)    { return nil, ErrNotLinked }
func openMySQL(string) (locks.Store, error)    { return nil, ErrNotLinked }
func openPostgres(string) (locks.Store, error) { return nil, ErrNotLinked }
func openEtcd(string) (locks.Store, error)     { return nil, ErrNotLinked }
