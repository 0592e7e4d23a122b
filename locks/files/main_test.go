package files_test

import (
	"fmt"
	"os"
	"testing"

	"golock/test/testkit"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(orderVariable); order != "" {
		if err := obey(order); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(testkit.Library(m))
}
