//go:build integration && !race

package runner

func init() { depth = 0 }
