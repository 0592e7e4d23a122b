//go:build integration

package lockfile

import (
	"path/filepath"
	"testing"
)

// The other tools of each family keep golock out, and are kept out by it.
func TestOtherTools(t *testing.T) {
	for _, c := range []otherTool{
		{Flock, []string{"setlock", "-n"}, nil, 111},
		{Fcntl, []string{"s6-setlock", "-n"}, []string{"s6-setlock", "-n", "-r"}, 1},
		{Fcntl, []string{"runlock", "-t", "1", "-f"}, nil, 73},
	} {
		t.Run(c.tool[0], c.meets)
	}
}

func TestEntriesOfFcntl(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	holderAndWaiter(t, New(Fcntl, file), "s6-setlock", file, "true")
}
