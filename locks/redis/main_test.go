//go:build integration

package redis_test

import (
	"os"
	"testing"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Library(m, redistest.Close)) }
