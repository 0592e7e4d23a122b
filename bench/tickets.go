package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// addTickets builds the program that has many tickets in one process.
func (b *bench) addTickets() error {
	path := filepath.Join(b.dir, "tickets")
	b.tools["tickets"] = &tool{name: "tickets", path: path}
	if err := goBuild(path, "./bench/tickets"); err != nil {
		return fmt.Errorf("building bench/tickets (run this from the module's root): %w", err)
	}
	return nil
}

// ticketsProcess is one that runs; bench/tickets says what it does.
type ticketsProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// toldTickets is what it tells, times in ms.
type toldTickets struct {
	Took    []float64 `json:"took"`
	Granted []float64 `json:"granted"`
	Lasted  float64   `json:"lasted"`
}

func (b *bench) startTickets(args ...string) (*ticketsProcess, error) {
	c := exec.Command(b.tools["tickets"].path, args...)
	c.Env, c.SysProcAttr = b.env, &syscall.SysProcAttr{Setsid: true}
	log, err := os.OpenFile(b.logReader, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.Stderr = log
	p := &ticketsProcess{cmd: c}
	if p.in, err = c.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil, errStopped
	}
	return p, c.Start()
}

// told waits for the next line.
func (p *ticketsProcess) told() (t toldTickets, err error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		_ = p.cmd.Wait()
		return t, fmt.Errorf("%q ended: %v", strings.Join(p.cmd.Args[1:2], " "), p.cmd.ProcessState)
	}
	return t, json.Unmarshal([]byte(line), &t)
}

// renew has the first n slots prolonged.
func (p *ticketsProcess) renew(n int) (t toldTickets, err error) {
	if _, err := fmt.Fprintf(p.in, "renew %d\n", n); err != nil {
		return t, err
	}
	return p.told()
}

// finish ends the orders, and waits until all slots are given back.
func (p *ticketsProcess) finish() (t toldTickets, err error) {
	if err := p.in.Close(); err != nil {
		return t, err
	}
	if t, err = p.told(); err != nil {
		return t, err
	}
	return t, p.cmd.Wait()
}

// cpu is what it has used so far, in ms.
func (p *ticketsProcess) cpu() (float64, error) { return cpuOf(p.cmd.Process.Pid) }
