package cli

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golock/locks"
	"golock/locks/local"
	"golock/test/testkit"
)

// What another user puts into a directory of his hides no lock of the others from
// ls --all-users.
func TestListOfAllUsers(t *testing.T) {
	bad, good := t.TempDir(), t.TempDir()
	ref, err := locks.NewRef("good")
	testkit.Must(t, err)
	ticket, err := local.New(good).Join(context.Background(), locks.Request{Ref: ref, Name: "good", Claim: locks.Claim{Weight: 1, Max: 1}})
	testkit.Must(t, err)
	lease, err := ticket.Wait(context.Background())
	testkit.Must(t, err)
	defer func() { _ = lease.Release(context.Background()) }()
	files, err := filepath.Glob(filepath.Join(good, "*.lock"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	testkit.Must(t, os.Symlink("/dev/null", filepath.Join(bad, filepath.Base(files[0]))))
	l := lister{stores: []locks.Store{local.New(bad), local.New(good)}}
	rows, err := l.list(context.Background())
	if len(rows) != 1 || rows[0].Name != "good" || err == nil {
		t.Errorf("%+v, %v", rows, err)
	}
}
