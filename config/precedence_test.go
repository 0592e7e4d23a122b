package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"golock/config"
)

// The sources from the strongest to the weakest, for tests that give each of
// them a value of its own.
const (
	flag = iota
	variable
	userLock
	systemLock
	userDefaults
	systemDefaults
	sources
)

// given writes the settings, by source and key, into the host's files and
// returns flags and environment. All values are the number of their source.
func (h host) given(keys [sources][]string) (flags, env) {
	h.t.Helper()
	f, e := flags{"name": {"it.s me"}}, env{}
	for _, key := range keys[flag] {
		f[key] = []string{fmt.Sprint(flag)}
	}
	for _, key := range keys[variable] {
		e["ENV_"+key] = fmt.Sprint(variable)
	}
	for path, tables := range map[string][2]int{h.user: {userDefaults, userLock}, h.system: {systemDefaults, systemLock}} {
		var text strings.Builder
		for i, header := range []string{"[defaults]", `[lock."it.s me"]`} {
			fmt.Fprintln(&text, header)
			for _, key := range keys[tables[i]] {
				fmt.Fprintf(&text, "%s = %d\n", key, tables[i])
			}
		}
		fmt.Fprintln(&text, "[lock.other]\na = 99\nb = 99\nc = 99")
		write(h.t, path, text.String())
	}
	return f, e
}

var three = []config.Setting{
	{Key: "name", Env: "ENV_name", NotInFile: true},
	{Key: "config", NotInFile: true},
	{Key: "a", Env: "ENV_a", Kind: config.Word, Group: "ab"},
	{Key: "b", Env: "ENV_b", Kind: config.Word, Group: "ab"},
	{Key: "c", Env: "ENV_c", Kind: config.Word, Default: "nobody"},
}

// Random sources for three settings, of which any may be alternatives.
func TestPrecedenceProperty(t *testing.T) {
	h := newHost(t)
	rapid.Check(t, func(t *rapid.T) {
		table := slices.Clone(three)
		for i := range table[2:] {
			table[2+i].Group = rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "group")
		}
		var keys [sources][]string
		for s := range sources {
			for _, key := range []string{"a", "b", "c"} {
				if rapid.Bool().Draw(t, key) {
					keys[s] = append(keys[s], key)
				}
			}
		}

		// The model: go down the sources; a group that was seen is closed for
		// the sources below.
		want, closed := map[string]string{"c": "nobody"}, map[string]bool{}
		for s := range sources {
			var seen []string
			for _, row := range table[2:] {
				group := "alone " + row.Key
				if row.Group != "" {
					group = row.Group
				}
				if slices.Contains(keys[s], row.Key) && !closed[group] {
					want[row.Key] = fmt.Sprint(s)
					seen = append(seen, group)
				}
			}
			for _, group := range seen {
				closed[group] = true
			}
		}

		f, e := h.given(keys)
		v, err := h.resolveOf(table, f, e)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b", "c"} {
			if got := v.Text(key); got != want[key] {
				t.Fatalf("%s is from %q, want %q", key, got, want[key])
			}
		}
	})
}
