//go:build lean

package open

import "golock/locks"

// Lean reports whether this program is without clients of servers: to initialise them at
// every start costs more than a local lock.
const Lean = true

func openRedis(string) (locks.Store, error)    { return nil, ErrNotLinked }
func openMySQL(string) (locks.Store, error)    { return nil, ErrNotLinked }
func openPostgres(string) (locks.Store, error) { return nil, ErrNotLinked }
