// Command orphans leaves processes without a parent behind and waits until PID 1 has reaped them; or, with an argument,
// sleeps and ends with 17 when it is told to by TERM.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	switch {
	case len(os.Args) == 1:
		for range 20 { // each starts one and ends first
			if err := exec.Command(os.Args[0], "parent").Run(); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
		for until := time.Now().Add(20 * time.Second); others() > 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(until) {
				fmt.Println(others(), "are left")
				os.Exit(1)
			}
		}
		fmt.Println("clean")
	case os.Args[1] == "parent":
		if err := exec.Command(os.Args[0], "child").Start(); err != nil {
			os.Exit(1)
		}
	case os.Args[1] == "child":
		time.Sleep(50 * time.Millisecond)
	case os.Args[1] == "term":
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGTERM)
		fmt.Println("in")
		<-told
		os.Exit(17)
	}
}

// others counts the processes that are neither PID 1 nor this one.
func others() (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		pid := strings.TrimPrefix(dir, "/proc/")
		if pid != "1" && pid != fmt.Sprint(os.Getpid()) {
			n++
		}
	}
	return n
}
