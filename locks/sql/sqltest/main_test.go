package sqltest_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"golock/locks/sql/sqltest"
)

func TestMain(m *testing.M) {
	code := sqltest.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
