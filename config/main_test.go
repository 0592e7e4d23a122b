package config

import (
	"os"
	"testing"

	"golock/test/testkit"
)

func TestMain(m *testing.M) {
	testkit.SetDefaults()
	os.Exit(m.Run())
}
