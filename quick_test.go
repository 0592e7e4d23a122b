package main

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/alecthomas/kong"
)

// thorough understands a command line of golock run with the library.
func thorough(t testing.TB, args []string) (*runCommand, error) {
	t.Helper()
	grammar, _ := grammarOf([]string{"run"})
	parser, err := kong.New(grammar, kong.Name("golock"), kong.NoDefaultHelp())
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(append([]string{"run"}, args...))
	return &grammar.(*runOnly).Run, err
}

// agree checks that what quick accepts means to the library what it means to
// quick.
func agree(t testing.TB, args []string) (accepted bool) {
	t.Helper()
	got := &runCommand{}
	if !got.quick(args) {
		return false
	}
	want, err := thorough(t, args)
	if err != nil {
		t.Fatalf("%q: quick accepts it, the library says: %v", args, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: quick makes it\n%s\nthe library\n%s", args, show(got), show(want))
	}
	return true
}

func show(c *runCommand) string { return fmt.Sprintf("%q, command %q", c.flags(), c.Command) }

// Every flag is known to quick, in all its forms.
func TestQuickKnowsEveryFlag(t *testing.T) {
	grammar, _ := grammarOf([]string{"run"})
	parser, err := kong.New(grammar, kong.Name("golock"), kong.NoDefaultHelp())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range parser.Model.Children[0].Flags {
		if f.Name == "timeout" {
			continue // always an error
		}
		forms := []string{"--" + f.Name}
		for _, alias := range f.Aliases {
			forms = append(forms, "--"+alias)
		}
		if f.Short != 0 {
			forms = append(forms, "-"+string(f.Short))
		}
		for _, form := range forms {
			args := []string{form, "5", "--", "true"}
			if f.IsBool() {
				args = []string{form, "true"}
			}
			if !agree(t, args) {
				t.Errorf("quick does not know %q", args)
			}
		}
		if !f.IsBool() && !agree(t, []string{forms[0] + "=", "--", "x"}) {
			t.Errorf("quick does not know %s=", forms[0])
		}
	}
}

// Random command lines mean the same to both.
func TestQuickAgrees(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	words := []string{
		"--name", "--name=x", "--nam", "-n", "-w", "5", "-w5", "-nw", "-sn", "--wait=", "--wait", "--", "-", "", "x", "cmd", "--max", "--max=3",
		"--rewrite", "TERM:INT", "--ok-exit=143", "--ok-exit", "-E", "0", "-E0", "--shared", "--shared=true", "--no-shared", "-x", "--nb", "--nonblock",
		"-F", "--no-fork", "--exec", "-o", "-v", "-q", "--help", "-h", "--tree", "--timeout", "--signal", "\xff\xfe", "--name=\xff", "a=b", "--=", "---", "-é", "--config=/x=y",
	}
	accepted := 0
	for range 5000 {
		args := make([]string, random.IntN(7))
		for i := range args {
			args[i] = words[random.IntN(len(words))]
		}
		if agree(t, args) {
			accepted++
		}
	}
	if accepted < 500 {
		t.Errorf("only %d of 5000 were accepted", accepted)
	}
}

func FuzzQuick(f *testing.F) {
	f.Add("--name", "x", "-n", "--", "true")
	f.Fuzz(func(t *testing.T, a, b, c, d, e string) { agree(t, []string{a, b, c, d, e}) })
}
