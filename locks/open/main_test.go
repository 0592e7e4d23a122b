package open_test

import (
	"os"
	"testing"

	"golock/test/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		serveChild()
		os.Exit(0)
	}
	os.Exit(testkit.Library(m))
}
