//go:build nopostgres

package open

// postgresEngines has none: with the tag nopostgres its driver is not linked.
func postgresEngines() []engine { return nil }
