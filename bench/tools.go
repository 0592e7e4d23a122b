package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// tool is a program that runs a command under a lock.
type tool struct {
	name      string
	words     []string                  // its command line; {dir} and {name} are the lock's
	waiting   func(l lock) (int, error) // those seen to wait
	lookEvery time.Duration
	serverPID func() (int, error) // nil if there is no server
	shell     bool                // started by a shell, not by the starter
	newName   bool                // each start is on a name of its own
}

// commandLines has the command line of each tool. lookUp replaces what is in braces and
// does not depend on the lock.
var commandLines = map[string]string{
	"true":                        "true",
	"flock":                       "flock {dir}/lock",
	"flock -F":                    "flock -F {dir}/lock",
	"setlock":                     "setlock {dir}/lock",
	"flock in Go":                 "{client floor} {dir}/lock",
	"sem":                         "sem --fg -j1 --id {name}",
	"golock":                      "{golock} run --name {name} --store local://{dir}",
	"golock, full":                "{full} run --name {name} --store local://{dir}",
	"golock mkdir":                "{golock} run --name {name} --store mkdir://{dir}",
	"golock redis":                "{golock} run --name {name} --store {redis url}",
	"golock mysql":                "{golock} run --name {name} --store {maria url}",
	"golock postgres":             "{golock} run --name {name} --store {postgres url}",
	"golock postgres, SCRAM":      "{golock} run --name {name} --store {postgres url}",
	"golock etcd":                 "{golock} run --name {name} --store {etcd store}",
	"golock mysql, waiters=37":    "{golock} run --name {name} --store {maria url}&waiters=37",
	"golock postgres, waiters=25": "{golock} run --name {name} --store {postgres url}&waiters=25",
	"SET NX, polling":             "{client poll} {redis address} {name}",
	"etcdctl lock":                "etcdctl --endpoints {etcd url} lock {name}",
	"etcd Lock":                   "{client etcdlock} {etcd url} {name}",
	"GET_LOCK":                    "{client getlock} {maria dsn} {name}",
	"pg_advisory_lock":            "{client advisory} {postgres bare url} {name}",
}

var placeholder = regexp.MustCompile(`\{[^}]*\}`)

// tool makes the one of a name, and starts its server if it has one. Flags
// follow golock's name; ", from bash" makes a shell start it, ", new name" makes each
// start the first one on its name.
func (b *bench) tool(name string) *tool {
	t := &tool{name: name, lookEvery: 3 * time.Millisecond}
	base, flags, _ := strings.Cut(name, " -")
	base, t.shell = strings.CutSuffix(base, ", from bash")
	base, t.newName = strings.CutSuffix(base, ", new name")
	if commandLines[name] != "" {
		base, flags = name, ""
	}
	line := commandLines[base]
	if line == "" {
		must(fmt.Errorf("no tool %q", name))
	}
	isGolock := strings.HasPrefix(base, "golock")
	if flags != "" {
		line += " -" + flags
	}
	if isGolock {
		line += " --"
	}
	t.words = strings.Fields(placeholder.ReplaceAllStringFunc(line, b.lookUp))
	path, err := exec.LookPath(t.words[0])
	if err != nil {
		must(fmt.Errorf("%w: run .ci/deps bench", err))
	}
	t.words[0] = path
	t.serverPID = b.servers.pidOf(base)
	switch {
	case base == "true":
		t.words = nil
	case isGolock:
		t.waiting = b.listedBy(t)
	case slices.ContainsFunc(acrossMachines, func(r row) bool { return r.tool == base }):
		t.waiting = func(l lock) (int, error) { return b.servers.waiting(base, l) }
	default:
		t.waiting = func(l lock) (int, error) { return blocked(l.dir) }
		t.lookEvery = 50 * time.Microsecond
	}
	return t
}

// lookUp gives what a placeholder stands for; the lock's are left.
func (b *bench) lookUp(key string) string {
	if name, is := strings.CutPrefix(strings.Trim(key, "{}"), "client "); is {
		path := filepath.Join(b.dir, name)
		if _, err := os.Stat(path); err != nil {
			return b.build(name, ".", "./clients/"+name)
		}
		return path
	}
	switch key {
	case "{dir}", "{name}":
		return key
	case "{golock}":
		return b.golock
	case "{full}":
		return b.full
	}
	return b.servers.address(b, strings.Trim(key, "{}"))
}

// run is the command line that runs a command under a lock.
func (t *tool) run(l lock, command ...string) []string {
	replace := strings.NewReplacer("{dir}", l.dir, "{name}", l.name)
	var argv []string
	for _, word := range t.words {
		argv = append(argv, replace.Replace(word))
	}
	return append(argv, command...)
}

// listedBy counts the waiters that golock itself lists.
func (b *bench) listedBy(t *tool) func(l lock) (int, error) {
	return func(l lock) (waiting int, err error) {
		argv := t.run(l) // golock run --name NAME --store URL ...
		ls := exec.Command(b.golock, "ls", argv[3], "--store", argv[5], "--json")
		out, err := ls.Output()
		if err != nil {
			return 0, fmt.Errorf("%s: %w", ls, err)
		}
		var entries []struct {
			State string `json:"state"`
		}
		if err := json.Unmarshal(out, &entries); err != nil {
			return 0, fmt.Errorf("%s: %w", ls, err)
		}
		for _, e := range entries {
			if e.State == "waiting" {
				waiting++
			}
		}
		return waiting, nil
	}
}

// serverCPU is what the server has used so far, in ms; 0 if there is none.
func (t *tool) serverCPU() float64 {
	if t.serverPID == nil {
		return 0
	}
	return cpuOf(get(t.serverPID()))
}
