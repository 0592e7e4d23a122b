//go:build !lean

package cli

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golock/config"
)

// parseWithKong parses a command line of a command with kong.
func parseWithKong(args []string) (command, error) {
	parsed, err := newParser(func(int) {}).Parse(args)
	if err != nil {
		return nil, err
	}
	return parsed.Selected().Target.Addr().Interface().(command), nil
}

// agree checks that what parseFast accepts means the same to kong.
func agree(t testing.TB, args []string) (accepted bool) {
	t.Helper()
	got := (&commands{}).find(args[0])
	if !parseFast(got, args[1:]) {
		return false
	}
	want, err := parseWithKong(args)
	if err != nil {
		t.Fatalf("%q: parseFast accepts it, kong says: %v", args, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: parseFast makes it\n%+v\nkong\n%+v", args, got, want)
	}
	return true
}

// The declarations that golock reads by itself are those in kong's model.
func TestDeclarations(t *testing.T) {
	for _, node := range newParser(nil).Model.Children {
		all := declarations((&commands{}).find(node.Name))
		for _, f := range node.Flags {
			i := slices.IndexFunc(all, func(d declaration) bool { return d.Key == f.Name })
			if i < 0 {
				t.Errorf("golock %s: --%s is not read", node.Name, f.Name)
				continue
			}
			d := all[i]
			short := ""
			if f.Short != 0 {
				short = string(f.Short)
			}
			got := []string{d.short, d.aliases, d.Env, d.Default, d.Group, fmt.Sprint(d.hidden), fmt.Sprint(d.NotInFile), fmt.Sprint(d.EmptyIsSet)}
			want := []string{short, strings.Join(f.Aliases, ","), f.Tag.Get("variable"), f.Tag.Get("builtin"), f.Tag.Get("alternative"),
				fmt.Sprint(f.Hidden), fmt.Sprint(f.Tag.Has("file")), fmt.Sprint(f.Tag.Has("empty"))}
			if !slices.Equal(got, want) || (d.Kind == config.Bool) != f.IsBool() {
				t.Errorf("golock %s --%s is read as %q, kong has %q: is help the last tag?", node.Name, f.Name, got, want)
			}
		}
		if len(all) != len(node.Flags)+len(node.Positional) {
			t.Errorf("golock %s has %d declarations, and %d flags", node.Name, len(all), len(node.Flags))
		}
	}
}

// parseFast knows every flag of every command, in all its forms.
func TestParseFastKnowsEveryFlag(t *testing.T) {
	last := map[string][]string{"run": {"true"}, "renew": {"ID"}, "release": {"ID"}}
	for _, node := range newParser(nil).Model.Children {
		for _, f := range node.Flags {
			for _, form := range namesOf(f) {
				args := []string{node.Name, form, "5"}
				if f.IsBool() {
					args = []string{node.Name, form}
				}
				if !agree(t, append(args, last[node.Name]...)) {
					t.Errorf("parseFast does not know %q", args)
				}
			}
			if !f.IsBool() && !agree(t, append([]string{node.Name, "--" + f.Name + "="}, last[node.Name]...)) {
				t.Errorf("parseFast does not know --%s=", f.Name)
			}
		}
	}
}

// Random command lines mean the same to both.
func TestParseFastAgrees(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	words := []string{
		"--name", "--name=x", "--nam", "-n", "-w", "5", "-w5", "-nw", "-sn", "--wait=", "--wait", "--", "-", "", "x", "cmd", "--max", "--max=3",
		"--rewrite", "TERM:INT", "--ok-exit=143", "--ok-exit", "-E", "0", "-E0", "--shared", "--shared=true", "--shared=false", "--shared=x", "-w=5", "-nw5", "-snE0", "-nE", "--no-shared", "-x", "-e", "--nb", "--nonblock",
		"-F", "--no-fork", "--exec", "-o", "-v", "-q", "--help", "-h", "--tree", "--timeout", "--signal", "\xff\xfe", "--name=\xff", "a=b", "--=", "---", "-é",
		"--config=/x=y", "--n", "--e", "-name", "--json", "--id", "--watch",
	}
	accepted := 0
	for range 1000 {
		args := []string{[]string{"run", "run", "ls", "release", "held", "break"}[random.IntN(6)]}
		for range random.IntN(7) {
			args = append(args, words[random.IntN(len(words))])
		}
		if agree(t, args) {
			accepted++
		}
	}
	if accepted < 100 {
		t.Errorf("only %d of 1000 were accepted", accepted)
	}
}

func FuzzParseFast(f *testing.F) {
	f.Add("--name", "x", "-n", "--", "true")
	f.Fuzz(func(t *testing.T, a, b, c, d, e string) { agree(t, []string{"run", a, b, c, d, e}) })
}

// Every command, flag and argument that users see has a help text.
func TestHelpIsComplete(t *testing.T) {
	for _, c := range newParser(nil).Model.Leaves(true) {
		if c.Help == "" || c.Name != "version" && c.Detail == "" {
			t.Errorf("golock %s has no help", c.Name)
		}
		values := slices.Clone(c.Positional)
		for _, f := range flagsOf(c) {
			values = append(values, f.Value)
		}
		for _, v := range values {
			if v.Help == "" || strings.Contains(v.Help, "$$$") {
				t.Errorf("golock %s, %s: %q", c.Name, v.Name, v.Help)
			}
		}
	}
}
