package files_test

import (
	"os"
	"testing"

	"golock/test/testkit"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(orderVariable); order != "" {
		obey(order)
		os.Exit(0)
	}
	os.Exit(testkit.Library(m))
}
