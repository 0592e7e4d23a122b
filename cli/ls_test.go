package cli

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golock/locks"
	"golock/locks/local"
)

// What another user puts into a directory of his hides no lock of the others from
// ls --all-users.
func TestListOfAllUsers(t *testing.T) {
	bad, good := t.TempDir(), t.TempDir()
	ref, err := locks.NewRef("good")
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := local.New(good).Join(context.Background(), locks.Request{Ref: ref, Name: "good", Claim: locks.Claim{Weight: 1, Max: 1}})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := ticket.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(context.Background()) }()
	files, err := filepath.Glob(filepath.Join(good, "*.lock"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(bad, filepath.Base(files[0]))); err != nil {
		t.Fatal(err)
	}
	l := lister{stores: []locks.Store{local.New(bad), local.New(good)}}
	rows, err := l.list(context.Background())
	if len(rows) != 1 || rows[0].Name != "good" || err == nil {
		t.Errorf("%+v, %v", rows, err)
	}
}
