//go:build integration

package cli

import "testing"

// The scripts in which golock meets other tools.
func TestScriptsWithTools(t *testing.T) { runScripts(t, "../testdata/integration") }
