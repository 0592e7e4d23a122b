//go:build integration

package sqltest_test

import (
	"os"
	"testing"

	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Library(m, sqltest.Close)) }
