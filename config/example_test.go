package config_test

import (
	"fmt"
	"os"
	"path/filepath"

	"golock/config"
)

// A flag is stronger than a variable, and a variable than a file. Each value knows its source.
func ExampleResolve() {
	dir, err := os.MkdirTemp("", "golock-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "golock.toml")
	text := "[defaults]\nttl = \"20s\"\n[lock.\"backup\"]\nmax = 3\nwait = \"1m\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		panic(err)
	}
	settings := []config.Setting{
		{Key: "name", Kind: config.String},
		{Key: "config", Kind: config.String, NotInFile: true},
		{Key: "max", Env: "GOLOCK_MAX", Kind: config.Int, Default: "1"},
		{Key: "wait", Env: "GOLOCK_WAIT", Kind: config.Duration},
		{Key: "ttl", Env: "GOLOCK_TTL", Kind: config.Duration, Default: "30s"},
	}
	v, err := config.Resolve(settings, config.Layers{
		Flags: map[string][]string{"name": {"backup"}, "config": {file}, "max": {"2"}},
		Lookup: func(name string) (string, bool) {
			value, isSet := map[string]string{"GOLOCK_WAIT": "5s"}[name]
			return value, isSet
		},
		Files: config.HostFiles(),
	})
	if err != nil {
		panic(err)
	}
	fmt.Println("max", v.Int("max", 1, 100)) // of the flag
	fmt.Println("wait", v.Duration("wait"))  // of the variable
	fmt.Println("ttl", v.Duration("ttl"))    // of the file
	fmt.Println("error:", v.Err())
	// Output:
	// max 2
	// wait 5s
	// ttl 20s
	// error: <nil>
}
