//go:build integration

// The command's side: what the test binary does when golock runs it.

package matrix_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golock/test/testkit"
)

// command plays the part named by the first argument:
//
//	@signals TAG   write each signal received; obey stdin
//	@pair          @signals parent with a child @signals child in its group
//	@orphans N     make N orphans, wait until init has reaped them
//
// @signals writes "TAG ready PID" and then "TAG NUMBER" for every signal
// whatsoever, and obeys the lines of its stdin: "counts" writes how
// often each signal came, "exit N" ends it.
func command(part string, args []string) int {
	switch part {
	case "@signals":
		return recordSignals(args[0], args[1:])
	case "@orphans":
		n, _ := strconv.Atoi(args[0])
		return makeOrphans(n)
	}
	fmt.Fprintf(os.Stderr, "unknown part %q\n", part)
	return 99
}

func recordSignals(tag string, more []string) int {
	// The Go runtime sends URG to itself unless told not to: begin again, as
	// the same process, without.
	const quiet = "GODEBUG=asyncpreemptoff=1"
	self, err := os.Executable()
	if err == nil && os.Getenv("GODEBUG") != "asyncpreemptoff=1" {
		err = syscall.Exec(self, os.Args, append(os.Environ(), quiet))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	came := make(chan os.Signal, 1024)
	signal.Notify(came)
	if len(more) > 0 {
		child := exec.Command(self, "@signals", more[0])
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 99
		}
		for sig := range came { // the child says that it is ready
			if sig == syscall.SIGWINCH {
				break
			}
		}
	}
	fmt.Println(tag, "ready", os.Getpid())
	if tag == "child" {
		syscall.Kill(os.Getppid(), syscall.SIGWINCH)
	}
	orders := make(chan string)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			orders <- in.Text()
		}
	}()
	counts := map[int]int{}
	for {
		select {
		case s := <-came:
			sig := s.(syscall.Signal)
			if sig == syscall.SIGCHLD {
				continue // one's own child
			}
			counts[int(sig)]++
			fmt.Println(tag, int(sig))
		case order := <-orders:
			switch verb, rest, _ := strings.Cut(order, " "); verb {
			case "counts":
				text, _ := json.Marshal(counts)
				fmt.Println(string(text))
			case "exit":
				code, _ := strconv.Atoi(rest)
				return code
			}
		}
	}
}

func makeOrphans(n int) int {
	for range n {
		if err := exec.Command("sh", "-c", "sh -c 'exit 3' & exit 0").Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 99
		}
	}
	// What is left beside init and this process has not been reaped.
	var left []string
	for end := time.Now().Add(testkit.Patience / 2); time.Now().Before(end); time.Sleep(time.Millisecond) {
		left = nil
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, d := range dirs {
			pid, _ := strconv.Atoi(filepath.Base(d))
			if s := testkit.StatOf(pid); pid != 1 && pid != os.Getpid() && pid != os.Getppid() && s.State != 0 { // golock may have a guard here
				left = append(left, fmt.Sprintf("%d %c", pid, s.State))
			}
		}
		if len(left) == 0 {
			fmt.Println("clean")
			return 0
		}
	}
	fmt.Println("left:", strings.Join(left, ", "))
	return 1
}
