//go:build nomysql

package open

// mysqlEngines has none: with the tag nomysql its driver is not linked.
func mysqlEngines() []engine { return nil }
