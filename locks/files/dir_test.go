package files_test

import (
	"fmt"
	. "golock/locks/locktest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golock/locks/files"
)

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"mkdir:///mnt/locks":      "mkdir:///mnt/locks",
		"symlink:///mnt/a%20b%25": "symlink:///mnt/a%20b%25",
		"excl:///x/":              "excl:///x/",
	} {
		s, err := files.Open(url)
		if err != nil || s.URL() != want {
			t.Errorf("Open(%q): %v, %v", url, s, err)
		}
	}
	for url, says := range map[string]string{
		"mkdir":              "want mkdir:///DIR",
		"mkdir:/x":           "two slashes",
		"mkdir://":           "a directory must be named",
		"mkdir:///":          "a directory must be named",
		"excl://host/x":      "host",
		"excl:///x?ttl=3":    "options",
		"symlink:///x%zz":    "path",
		"symlink:///x%00":    "zero byte",
		"mknod:///mnt/locks": "mknod",
	} {
		if _, err := files.Open(url); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Open(%q): %v, want %q", url, err, says)
		}
	}
}

// What others have put into the directory is left alone and changes nothing.
func TestForeignFiles(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(t, url)
		if err := Take(t, s, "n").Release(background); err != nil {
			t.Fatal(err)
		}
		dir := directory(t, url)
		lines, err := filepath.Glob(dir + "/*/line")
		if err != nil || len(lines) != 1 {
			t.Fatal(lines, err)
		}
		foreign := []string{
			dir + "/README", dir + "/.nfs0001", dir + "/0123456789abcdef0123456789abcdef", dir + "/new.x",
			lines[0] + "/h.1.x", lines[0] + "/h.1.0123456789abcdef0123456789abcdef-0", lines[0] + "/q..-", lines[0] + "/h." + strings.Repeat("9", 99), lines[0] + "/c.", lines[0] + "/.nfs12",
		}
		for _, f := range foreign {
			if err := os.WriteFile(f, []byte("foreign"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := Take(t, s, "n").Release(background); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sweep(background, "", 0); err != nil {
			t.Fatal(err)
		}
		if got := List(t, s, ""); len(got) != 0 {
			t.Errorf("entries %+v", got)
		}
		for _, f := range foreign {
			if _, err := os.Stat(f); err != nil {
				t.Error(err)
			}
		}
	})
}

// A token without a record that can be read takes everything until it must be
// dead.
func TestDamagedRecord(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(t, url)
		Take(t, s, "n", Limit(5))
		records, err := filepath.Glob(directory(t, url) + "/*/data/*/record")
		if err != nil || len(records) != 1 {
			t.Fatal(records, err)
		}
		if err := os.WriteFile(records[0], []byte("\x00\x00\x00"), 0o600); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		Refused(t, s, "n", Limit(5), TTL(shortTTL))
		Get(t, s, "n", Limit(5), TTL(shortTTL))
		if took := time.Since(began); took < shortTTL {
			t.Errorf("granted after %v", took)
		}
	})
}

// Names whose keys are the same, and layouts of another version, are refused.
func TestHeads(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(t, url)
		if err := Take(t, s, "n").Release(background); err != nil {
			t.Fatal(err)
		}
		heads, err := filepath.Glob(directory(t, url) + "/*/name")
		if err != nil || len(heads) != 1 {
			t.Fatal(heads, err)
		}
		for text, says := range map[string]string{
			`{"golock":1,"name":"other"}`: `belongs to the name "other"`,
			`{"golock":2,"name":"n"}`:     "has format 2, this golock knows format 1",
			"nonsense":                    "damaged",
		} {
			if err := os.WriteFile(heads[0], []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Join(background, NewRequest(t, "n", NoWait)); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("Join = %v, want %q", err, says)
			}
		}
	})
}

// A sweep takes the dead only, and only those that are old enough.
func TestSweep(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		s := openAt(t, url, "virtual", 0)
		live := Take(t, s, "live", TTL(keptTTL))
		keep(t, live)
		held := Take(t, s, "held", Hold(time.Hour))
		if err := GiveBack(held); err != nil {
			t.Fatal(err)
		}
		waiting := Queue(t, s, "live", TTL(keptTTL))
		dead := Take(t, s, "dead", TTL(keptTTL))
		if n, err := s.Sweep(background, "", time.Hour); n != 0 || err != nil {
			t.Errorf("Sweep of what is an hour old = %d, %v", n, err)
		}
		if n, err := s.Sweep(background, "", 0); n != 1 || err != nil {
			t.Errorf("Sweep = %d, %v", n, err)
		}
		if _, err := dead.Renew(background); err == nil {
			t.Error("the dead one renews")
		}
		if waiting.IsOver() || len(List(t, s, "live")) != 2 || len(List(t, s, "held")) != 1 {
			t.Errorf("what is left: %+v", List(t, s, ""))
		}
		if n, err := s.Sweep(background, "", 0); n != 0 || err != nil {
			t.Errorf("second Sweep = %d, %v", n, err)
		}
	})
}

func FuzzTokens(f *testing.F) {
	f.Add("h.000000000001.0123456789abcdef0123456789abcdef-0")
	f.Fuzz(func(t *testing.T, name string) {
		if text, ok := files.TokenText(name); ok && text != name {
			t.Errorf("%q is read as %q", name, text)
		}
	})
}

// Whoever cleans up while names are used for the first time is in nobody's way,
// and leaves every name as it must be.
func TestSweepWhileNamesAreMade(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		done := make(chan struct{})
		var sweepers, users sync.WaitGroup
		for range 2 {
			s := open(t, url)
			sweepers.Go(func() {
				for {
					if _, err := s.Sweep(background, "", 0); err != nil {
						t.Errorf("Sweep: %v", err)
					}
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		s := open(t, url)
		for user := range 4 {
			users.Go(func() {
				for i := range 10 {
					for range 2 {
						ticket, err := s.Join(background, NewRequest(t, fmt.Sprint(user, "-", i)))
						if err != nil {
							t.Errorf("Join: %v", err)
							return
						}
						if l, err := ticket.Wait(background); err != nil {
							t.Errorf("Wait: %v", err)
						} else if err := GiveBack(l); err != nil {
							t.Errorf("Release: %v", err)
						}
					}
				}
			})
		}
		users.Wait()
		close(done)
		sweepers.Wait()
	})
}

// Who makes a name and is held up for so long that it is taken for left behind
// makes it again.
func TestSweptWhileItIsMade(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		slow, s := open(t, url), open(t, url)
		held := true
		slow.At(func(step string) {
			if step == "built" && held {
				held = false
				if n, err := s.Sweep(background, "", 0); n != 1 || err != nil {
					t.Errorf("Sweep = %d, %v, want 1", n, err)
				}
			}
		})
		if err := GiveBack(Take(t, slow, "n")); err != nil {
			t.Error(err)
		}
		sweepAll(t, url)
	})
}
