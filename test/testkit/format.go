package testkit

import (
	"fmt"
	"os"
	"testing"
)

// Format compares what is stored with the sample of its format's number: golocks of two
// versions that use one store know each other by that number alone.
func Format(t testing.TB, number any, text string) {
	t.Helper()
	path := fmt.Sprintf("testdata/format-%v", number)
	if sample, err := os.ReadFile(path); err != nil || string(sample) != text {
		t.Errorf("what is stored is not %s (%v). What has changed needs a new number and a new sample:\n%s", path, err, text)
	}
}
