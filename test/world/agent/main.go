// Agent is the program of make world inside a guest. It serves the test on the host over a serial port: it runs
// scripts and tells which members live. It also plays what the units of docs/examples start.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if err := play(filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// play does what the program is called for. The names are those that the units of docs/examples use.
func play(name string, args []string) error {
	switch name {
	case "agent":
		return serve(args[0])
	case "member":
		return member(args)
	case "worker":
		return work()
	case "echo-server":
		return echo()
	case "ask":
		return ask(args[0])
	case "eat-memory":
		return eat()
	}
	return fmt.Errorf("no part %s", name)
}

// socket is where members say that they live. The kernel closes their connections when they die.
const socket = "/run/world.socket"

// member is the command of golocks that may not overlap: member TOKEN MILLISECONDS. It lives for that long.
func member(args []string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(conn, args[0]); err != nil {
		return err
	}
	lasts, err := strconv.Atoi(args[1])
	time.Sleep(time.Duration(lasts) * time.Millisecond) // the work
	return err
}

// work is a service that says when it is ready, notes each HUP, and keeps a watchdog of systemd quiet until
// there is a file /run/world.stuck.
func work() error {
	log, err := os.OpenFile("/run/world.worker", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: os.Getenv("NOTIFY_SOCKET"), Net: "unixgram"})
	if err != nil {
		return err
	}
	hups := make(chan os.Signal, 1)
	signal.Notify(hups, syscall.SIGHUP)
	fmt.Fprintln(log, "start")
	fmt.Fprint(conn, "READY=1")
	beat := time.NewTicker(time.Second)
	for {
		select {
		case <-hups:
			fmt.Fprintln(log, "reload")
		case <-beat.C:
			if _, err := os.Stat("/run/world.stuck"); err != nil {
				fmt.Fprint(conn, "WATCHDOG=1")
			}
		}
	}
}

// echo answers the first connection to the socket that systemd passes, with the PID that LISTEN_PID must name.
func echo() error {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("LISTEN_PID is %s, this is process %d", os.Getenv("LISTEN_PID"), os.Getpid())
	}
	listener, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(conn, "hello")
	return err
}

// ask prints what a unix socket answers.
func ask(path string) error {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// eat takes memory in a child until the kernel kills one of its processes.
func eat() error {
	if os.Getenv("EATS") == "" {
		child := exec.Command("/proc/self/exe")
		child.Args[0] = "eat-memory"
		child.Env = append(os.Environ(), "EATS=1")
		return child.Run()
	}
	for all := [][]byte{}; ; {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1 // the kernel has to give the page
		}
		all = append(all, block)
	}
}
