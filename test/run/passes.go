package main

import (
	"slices"
	"strings"

	"golock/test/testkit"
)

// pass is one go test.
type pass struct {
	name     string
	kind     *kind
	flags    []string // flags for go test
	packages func(path string) bool
	env      []string
}

// kind is a way in which tests are compiled.
type kind struct {
	name     string // the name of its directory
	flags    []string
	env      []string
	emulator string
}

// Passes without the race detector compile as the programs do, so packages are compiled once for both.
var (
	raced    = &kind{name: "race", flags: []string{"-race", "-tags", "integration"}}
	plain    = &kind{name: "plain", flags: []string{"-tags", "integration"}, env: []string{"CGO_ENABLED=0"}}
	portable = &kind{name: "portable", flags: []string{"-tags", "portable"}, env: []string{"CGO_ENABLED=0"}}
	for386   = &kind{name: "386", env: []string{"CGO_ENABLED=0", "GOARCH=386"}}
	forARM   = &kind{name: "arm", env: []string{"CGO_ENABLED=0", "GOARCH=arm", "GOARM=6"}, emulator: "qemu-arm-static"}
)

// Tests that try everything, one after the other, or have ten thousand of something: the race detector
// would find nothing, slowly.
const exhaustive = "^TestEvery(Schedule|PathOfALease)$|^TestLongCommands$|^TestRowsFullOfText$"

// The conformance suite has two parts. In the histories, goroutines of the test share the engine's
// state: the race detector watches them. All else is asked of processes, which are the test binary
// again. With the race detector each takes twice as much time to start and has less to find.
// The suite is run for the engine, or for several schemes of it.
const (
	histories = "^TestConformance$/^Histories$|^TestConformance$/^[a-z]/^Histories$"
	processes = "^TestConformance$/^([A-GI-Z]|Ho)|^TestConformance$/^[a-z]/^([A-GI-Z]|Ho)"
)

// serial are packages outside test/ that the race detector has nothing to find in: they have no
// goroutines, or their tests start programs. (cli: what has goroutines there runs in the pass "race,
// program".)
const serial = "cli cli/doctor cli/report cli/report/webpage cli/term config docs/pictures internal/execvp internal/pidfd " +
	"internal/procfs internal/proctree locks locks/owner locks/queue locks/sql/mysql locks/sql/postgres"

// Tests of the matrix in which golock does not come to its store, or in which the shell is what is tried.
const beforeStore = "^TestSignals(InTheFirstInstants|OfTheFirstMilliseconds|BeforeMain)$|^TestCtrlCEndsAScript$"

// passes are all of make test. The race detector watches what is linked into
// the test; suites that start the program have no use for it.
var passes = []pass{
	{name: "race", kind: raced, flags: []string{"-skip", exhaustive + "|" + processes}, packages: isRaced},
	{name: "serial", kind: plain, packages: are(serial)},
	// The program itself: some that wait, hold, report and end in each way.
	{name: "race, program", kind: plain, flags: []string{"-run", "^TestScripts$/^(policy|report)$"},
		packages: are("cli"), env: []string{testkit.RaceVariable + "=1", testkit.BinaryVariable + "="}},
	{name: "processes", kind: plain, flags: []string{"-run", exhaustive + "|^TestConformance$", "-skip", histories},
		packages: are("runner locks/etcd locks/files locks/local locks/open locks/redis locks/sql")},
	{name: "black box", kind: plain, packages: isSuite},
	{name: "matrix on redis", kind: plain, flags: []string{"-skip", beforeStore},
		packages: are("test/matrix"), env: []string{"LOCKTEST_STORE=redis"}},
	// Only these tests depend on how a run leaves the queue of a database.
	{name: "matrix on mariadb", kind: plain, flags: []string{"-run", "Waiting|ManyInstants"},
		packages: are("test/matrix"), env: []string{"LOCKTEST_STORE=mariadb"}},
	{name: "portable", kind: portable, packages: are("signals")},
	bits32,
}

// bits32 is without the tests that try everything, which need minutes and have no large numbers.
// The scripts would start the golock of the other passes.
var bits32 = pass{name: "32 bits", kind: for386, flags: []string{"-skip", exhaustive + "|^TestScripts$"}, packages: isUnit}

// emulated is bits32 where the kernel runs no 32-bit programs: as ARM, in an emulator, which has
// neither processes that start each other nor all of /proc, and is slow. It runs the packages whose
// numbers come from outside, without the tests of random ones: those are Go's own. Of the two emulators
// only the one of ARM runs Go programs. TestDist makes programs for the same ARM.
var emulated = pass{
	name: "32 bits, emulated", kind: forARM, flags: []string{"-skip", "^TestRandomSteps$|^TestPrecedenceProperty$"},
	packages: are("locks locks/queue locks/network locks/sql config cli/term"),
}

const module = "golock"

// are names packages.
func are(paths string) func(string) bool {
	return func(path string) bool {
		return slices.Contains(strings.Fields(paths), strings.TrimPrefix(path, module+"/"))
	}
}

func isSuite(path string) bool { return strings.HasPrefix(path, module+"/test/") }

func isUnit(path string) bool { return !isSuite(path) }

func isRaced(path string) bool { return isUnit(path) && !are(serial)(path) }

// where gives the pass, or what stands for it on this machine.
func (p pass) where() (pass, error) {
	if p.name != bits32.name {
		return p, nil
	}
	runs, err := testkit.Runs386()
	if err == nil && !runs {
		p = emulated
	}
	return p, err
}

// replay is the command that runs a test of the pass again.
func (p *pass) replay(path, test string) string {
	words := slices.Concat(p.kind.env, p.env, []string{"go", "test", "-count=1"})
	if p.kind.emulator != "" {
		words = append(words, "-exec", p.kind.emulator)
	}
	for _, flag := range slices.Concat(p.kind.flags, p.flags) {
		if strings.ContainsAny(flag, "(|") {
			flag = "'" + flag + "'"
		}
		words = append(words, flag)
	}
	if test != "" {
		parts := strings.Split(test, "/")
		for i, part := range parts {
			parts[i] = "^" + part + "$"
		}
		words = append(words, "-run", "'"+strings.Join(parts, "/")+"'")
	}
	return strings.Join(append(words, "."+strings.TrimPrefix(path, module)), " ")
}
