package main

import (
	"debug/buildinfo"
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// lock is one lock to contend for. Each tool keeps what it needs in dir.
type lock struct{ dir, name string }

// tool is one of the programs compared.
type tool struct {
	name    string
	path    string
	version string
	// argv is the command line that runs command under the lock.
	argv func(l lock, command ...string) []string
	// waiting counts those that wait for the lock and do nothing meanwhile.
	waiting func(l lock) (int, error)
	// polls says that nothing shows who waits but that it sleeps.
	polls bool
	// store is the URL of golock's store for a lock, nil for the others.
	store func(l lock) string
}

// isGolock tells golock's rows from those of others.
func (t *tool) isGolock() bool { return strings.HasPrefix(t.name, "golock") }

// packaged is the version of a Debian package.
func packaged(name string) string { return firstLine("dpkg-query", "-W", name) }

// findPeers looks for the tools that golock is measured against. All of them
// must be there: a table with a row missing is not a comparison.
func findPeers() (map[string]*tool, error) {
	tools := map[string]*tool{}
	var missing []string
	for _, p := range []struct {
		name, debian string
		version      []string
		argv         func(path string, l lock, command []string) []string
	}{
		{"true", "coreutils", []string{"--version"}, func(path string, _ lock, _ []string) []string {
			return []string{path}
		}},
		{"flock", "util-linux", []string{"--version"}, func(path string, l lock, command []string) []string {
			return append([]string{path, filepath.Join(l.dir, "lock")}, command...)
		}},
		{"flock -F", "util-linux", nil, func(path string, l lock, command []string) []string {
			return append([]string{path, "-F", filepath.Join(l.dir, "lock")}, command...)
		}},
		{"setlock", "daemontools", nil, func(path string, l lock, command []string) []string {
			return append([]string{path, filepath.Join(l.dir, "lock")}, command...)
		}},
		{"s6-setlock", "s6", nil, func(path string, l lock, command []string) []string {
			return append([]string{path, filepath.Join(l.dir, "lock")}, command...)
		}},
		{"chpst -l", "runit", nil, func(path string, l lock, command []string) []string {
			return append([]string{path, "-l", filepath.Join(l.dir, "lock")}, command...)
		}},
		{"timeout", "coreutils", []string{"--version"}, func(path string, _ lock, command []string) []string {
			return append([]string{path, "3600"}, command...)
		}},
		{"tini", "tini", []string{"--version"}, func(path string, _ lock, command []string) []string {
			return append([]string{path, "-s", "--"}, command...)
		}},
		{"dumb-init", "dumb-init", nil, func(path string, _ lock, command []string) []string {
			return append([]string{path, "--"}, command...)
		}},
		{"sem", "parallel", []string{"--version"}, func(path string, l lock, command []string) []string {
			return append([]string{path, "--fg", "-j1", "--id", l.name}, command...)
		}},
	} {
		program, _, _ := strings.Cut(p.name, " ")
		path, err := exec.LookPath(program)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			missing = append(missing, p.debian)
			continue
		}
		t := &tool{name: p.name, path: path, waiting: blocked, polls: p.name == "sem", argv: func(l lock, command ...string) []string { return p.argv(path, l, command) }}
		if p.version != nil {
			t.version = firstLine(path, p.version...)
		} else {
			t.version = packaged(p.debian)
		}
		tools[p.name] = t
	}
	if missing != nil {
		return nil, fmt.Errorf("a tool to compare with is missing: run .ci/deps bench, or apt-get install %s", strings.Join(missing, " "))
	}
	return tools, nil
}

//go:embed testdata/floor.go
var floorGo []byte

// addFloor builds flock in Go: golock's cost beyond its rows is golock's own,
// the rest is Go's.
func (b *bench) addFloor() error {
	path := filepath.Join(b.dir, "floor")
	b.tools["floor"] = &tool{name: "flock in Go", path: path, waiting: blocked, argv: func(l lock, command ...string) []string {
		return append([]string{path, filepath.Join(l.dir, "lock")}, command...)
	}}
	b.tools["floor -F"] = &tool{name: "flock -F in Go", path: path, waiting: blocked, argv: func(l lock, command ...string) []string {
		return append([]string{path, "-F", filepath.Join(l.dir, "lock")}, command...)
	}}
	return b.buildGo(path, floorGo)
}

// addGolock builds golock as a release is built, or takes the binary given.
func (b *bench) addGolock(path string) error {
	var err error
	if path == "" {
		path = filepath.Join(b.dir, "golock")
		if err := goBuild(path, "."); err != nil {
			return fmt.Errorf("building golock (run this from the module's root): %w", err)
		}
	} else if path, err = filepath.Abs(path); err != nil {
		return err
	}
	version := firstLine(path, "version")
	if version == "" {
		return fmt.Errorf("%s version: no answer", path)
	}
	if info, err := buildinfo.ReadFile(path); err == nil {
		version += ", built with " + info.GoVersion
	}
	b.tools["golock"] = golockTool("golock run", path, localStore)
	b.tools["golock"].version = version
	b.tools["golock -q"] = golockTool("golock run -q", path, localStore, "-q")
	b.tools["golock -F"] = golockTool("golock run -F", path, localStore, "-F")
	return nil
}

func localStore(l lock) string { return "local://" + l.dir }

// golockTool is golock at path on a store, with these flags. Whose waiters
// /proc/locks does not show has to replace waiting.
func golockTool(name, path string, store func(l lock) string, flags ...string) *tool {
	return &tool{name: name, path: path, store: store, waiting: blocked, argv: func(l lock, command ...string) []string {
		argv := []string{path, "run", "--name", l.name, "--store", store(l)}
		return append(append(append(argv, flags...), "--"), command...)
	}}
}

// firstLine of what a program prints, empty if it fails.
func firstLine(path string, args ...string) string {
	out, err := exec.Command(path, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.Join(strings.Fields(line), " ")
}
