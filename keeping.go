package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/runner"
)

// The slot of golock acquire is kept by a process of its own, the keeper: this
// same program, in its own session, with none of the caller's files open. It
// takes the slot itself, so that nothing has to be handed over, while the golock
// that was called waits for the result at the other end of a socket:
//
//	order    what is asked for, in JSON                       to the keeper
//	news     a line of the log, or the result, a line of JSON from the keeper
//	one byte the ID has been printed                          to the keeper
//
// If the socket ends before the last, the keeper gives up whatever it has.

// keeperName is the first argument of a process that is to be a keeper.
const keeperName = "golock-keeper"

// The descriptors of a keeper, beside the standard ones, which are /dev/null.
const (
	keeperSocket  = 3
	keeperProcess = 4 // the pidfd of whom the slot is for
)

// order is what a keeper is to do.
type order struct {
	Address string // the store's URL, which may have secrets in it: not for the command line
	Request locks.Request
	Wait    time.Duration
	Pace    pace // in which the waiting is to be told of
}

// news is what a keeper tells.
type news struct {
	Result *result  `json:",omitempty"`
	Warn   bool     `json:",omitempty"`
	Log    string   `json:",omitempty"`
	Pairs  []string `json:",omitempty"`
	Say    string   `json:",omitempty"`

	Waits *runner.Waiting `json:",omitempty"` // and will go on
	Line  bool            `json:",omitempty"` // and that is to be told
	Over  bool            `json:",omitempty"` // the waiting
}

// keeper is golock acquire's end of it.
type keeper struct {
	pid    int
	socket int
	heard  []byte // and not yet understood
	tell   func(w *runner.Waiting, line bool)
}

var errKeeperGone = errors.New("the process that was to keep the slot has ended")

// startKeeper starts one for a process.
func startKeeper(a *acquisition, out *printer) (*keeper, error) {
	how := out.paceOf()
	text, err := json.Marshal(order{Address: a.run.Address, Request: a.run.Request, Wait: a.run.Wait, Pace: how})
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(pair[1])
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(pair[0])
		return nil, fmt.Errorf("%s: %w", os.DevNull, err)
	}
	defer unix.Close(null)
	keepToYourself()
	k := &keeper{socket: pair[0], tell: out.tellWaiting(how)}
	a.run.Relay.AsCaller(func() {
		k.pid, err = syscall.ForkExec("/proc/self/exe", []string{keeperName, a.run.Request.Name, "for", strconv.Itoa(a.pid)}, &syscall.ProcAttr{
			Dir: "/", Env: os.Environ(),
			Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(pair[1]), uintptr(a.process)},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
	})
	if err != nil {
		unix.Close(k.socket)
		return nil, fmt.Errorf("starting the process that keeps the slot: %w", err)
	}
	a.run.Relay.Watch(k.socket)
	return k, k.send(append(text, '\n'))
}

// keepToYourself makes all that this process has open, but the standard files,
// close when it starts another one: whoever waits for the end of a pipe must not
// have to wait for the keeper.
func keepToYourself() {
	if unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	files, _ := os.ReadDir("/proc/self/fd") // before Linux 5.11
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

func (k *keeper) send(text []byte) error {
	for len(text) > 0 {
		n, err := unix.SendmsgN(k.socket, text, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errKeeperGone, err)
		}
		text = text[n:]
	}
	return nil
}

// next gives the result, if it has come; it never waits. What the keeper says
// of the waiting goes to the run's own ways to do so.
func (k *keeper) next(run *runner.Run) (*result, error) {
	for {
		line, rest, whole := bytes.Cut(k.heard, []byte("\n"))
		if !whole {
			var more [4096]byte
			n, _, err := unix.Recvfrom(k.socket, more[:], unix.MSG_DONTWAIT)
			switch {
			case err == unix.EINTR:
				continue
			case err == unix.EAGAIN:
				return nil, nil
			case err != nil || n == 0:
				return nil, errKeeperGone
			}
			k.heard = append(k.heard, more[:n]...)
			continue
		}
		k.heard = rest
		var m news
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, err
		}
		switch {
		case m.Result != nil:
			k.tell(nil, false)
			return m.Result, nil
		case m.Waits != nil || m.Over:
			k.tell(m.Waits, m.Line)
			continue
		}
		pairs := make([]any, len(m.Pairs))
		for i, p := range m.Pairs {
			pairs[i] = p
		}
		if m.Say != "" {
			run.Say(m.Say)
			continue
		}
		run.Log(m.Warn, m.Log, pairs...)
	}
}

// confirm tells the keeper that the ID is known.
func (k *keeper) confirm() { _ = k.send([]byte{'\n'}) }

// dismiss tells the keeper that nobody wants the slot, and waits a moment for
// its end.
func (k *keeper) dismiss() {
	k.tell(nil, false)
	_ = unix.Shutdown(k.socket, unix.SHUT_WR)
	for until := time.Now().Add(keeperLimit); time.Now().Before(until); {
		if pid, err := syscall.Wait4(k.pid, nil, syscall.WNOHANG, nil); pid != 0 && err != syscall.EINTR {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// withdraw gives back a slot that nobody learnt of.
func withdraw(lease locks.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), giveBackLimit)
	defer cancel()
	_ = lease.Release(ctx)
}

// giveBackLimit bounds the giving back of a slot.
const giveBackLimit = 2 * time.Second

// log takes a step of a run.
func (p *printer) log(warn bool, message string, pairs ...any) {
	if warn {
		p.warn(message, pairs...)
	} else {
		p.step(message, pairs...)
	}
}
