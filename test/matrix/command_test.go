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
	"strconv"
	"strings"
	"syscall"
)

// recordSignals writes "TAG ready PID" and then "TAG NUMBER" for every signal, and obeys the lines
// of its stdin: "counts" writes how often each signal came, "exit N" ends it. With a second tag it
// has a child that does the same in its group.
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
