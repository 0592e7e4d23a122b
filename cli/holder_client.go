package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/locks"
	"golock/runner"
)

// A holder process keeps the slot of golock acquire: this same program, in its
// own session, with none of the caller's files open. It takes the slot itself,
// so nothing is handed over. It talks to golock acquire over a socket:
//
//	request   what is wanted, a line of JSON            to the holder
//	message   a log line or the result, a line of JSON  from the holder
//	one byte  the ID has been printed                   to the holder
//
// If the socket ends before the last, the holder releases whatever it has.

// HolderName is the first argument of a holder process.
const HolderName = "golock-holder"

// The descriptors of a holder, beside the standard ones, which are /dev/null.
const (
	holderSocket  = 3
	holderProcess = 4 // the pidfd of the process of --for
)

// abandonLimit bounds the wait for the end of a holder that nobody needs: its
// place in the queue is gone then, or soon will be.
const abandonLimit = 80 * time.Millisecond

var errHolderGone = errors.New("the process that was to hold the slot has ended")

// holderRequest is what a holder is to take.
type holderRequest struct {
	Address string // the store's URL may have secrets: not for the command line
	Request locks.Request
	Jitter  time.Duration
	Wait    time.Duration
	Pace    term.Pace // of the progress of waiting
}

// holderMessage is what a holder reports. One of Result, Log, Say, Waits and Over
// is set.
type holderMessage struct {
	Result *result  `json:",omitempty"`
	Warn   bool     `json:",omitempty"`
	Log    string   `json:",omitempty"`
	Pairs  []string `json:",omitempty"`
	Say    string   `json:",omitempty"`

	Waits *runner.Waiting `json:",omitempty"`
	Line  bool            `json:",omitempty"` // a line about it is due
	Over  bool            `json:",omitempty"` // the waiting has ended
}

// result is the outcome of the attempt to take a slot.
type result struct {
	ID     string // "": there is no slot
	Code   int
	Busy   bool           // -E sets the exit code
	Signal syscall.Signal // that ended the waiting
	Text   string         // the error
}

func resultOf(o runner.Outcome) result {
	r := result{Code: codeOfRun(o), Signal: o.Signal}
	if o.Err != nil {
		r.Text = o.Err.Error()
	}
	// If the process of --for is gone, there was no slot in time.
	if r.Busy = o.Kind == runner.Busy || o.Kind == runner.Unwanted; r.Busy {
		r.Code = exitBusy
	}
	return r
}

// holderClient is golock acquire's end of the socket.
type holderClient struct {
	pid      int
	socket   int
	buffer   []byte
	progress func(w *runner.Waiting, line bool)
}

// startHolder starts a holder process.
func startHolder(a *acquisition, out *term.Printer) (*holderClient, error) {
	pace := out.PaceOf()
	text, err := json.Marshal(holderRequest{Address: a.run.Address, Request: a.run.Request, Jitter: a.run.Jitter, Wait: a.run.Wait, Pace: pace})
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
	closeFilesOnExec()
	h := &holderClient{socket: pair[0], progress: out.Progress(pace)}
	a.run.Relay.AsCaller(func() {
		argv := []string{HolderName, a.run.Request.Name, "for", strconv.Itoa(a.pid)}
		h.pid, err = syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
			Dir: "/", Env: os.Environ(),
			Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(pair[1]), uintptr(a.process)},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
	})
	if err != nil {
		unix.Close(h.socket)
		return nil, fmt.Errorf("starting the process that holds the slot from /proc/self/exe: %w", err)
	}
	a.run.Relay.Watch(h.socket)
	return h, h.send(append(text, '\n'))
}

// closeFilesOnExec makes all files but the standard ones close-on-exec: who waits
// for the end of a pipe must not wait for the holder.
func closeFilesOnExec() {
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

func (h *holderClient) send(text []byte) error {
	for len(text) > 0 {
		n, err := unix.SendmsgN(h.socket, text, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errHolderGone, err)
		}
		text = text[n:]
	}
	return nil
}

// next gives the result, nil if it has not come; it never waits. It prints what
// the holder reports meanwhile.
func (h *holderClient) next(run *runner.Run) (*result, error) {
	for {
		line, err := h.readLine()
		if line == nil || err != nil {
			return nil, err
		}
		var m holderMessage
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, err
		}
		switch {
		case m.Result != nil:
			h.progress(nil, false)
			return m.Result, nil
		case m.Waits != nil || m.Over:
			h.progress(m.Waits, m.Line)
		case m.Say != "":
			run.Say(m.Say)
		default:
			pairs := make([]any, len(m.Pairs))
			for i, p := range m.Pairs {
				pairs[i] = p
			}
			run.Log(m.Warn, m.Log, pairs...)
		}
	}
}

// readLine gives the next whole line; nil: there is none yet.
func (h *holderClient) readLine() ([]byte, error) {
	for {
		if line, rest, whole := bytes.Cut(h.buffer, []byte("\n")); whole {
			h.buffer = rest
			return line, nil
		}
		var more [4096]byte
		n, _, err := unix.Recvfrom(h.socket, more[:], unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return nil, nil
		case err != nil || n == 0:
			return nil, errHolderGone
		default:
			h.buffer = append(h.buffer, more[:n]...)
		}
	}
}

// confirm says that the ID is printed.
func (h *holderClient) confirm() { _ = h.send([]byte{'\n'}) }

// abandon says that nobody needs the slot, and waits a moment for the end of the
// holder.
func (h *holderClient) abandon() {
	h.progress(nil, false)
	_ = unix.Shutdown(h.socket, unix.SHUT_WR)
	for until := time.Now().Add(abandonLimit); time.Now().Before(until); {
		if pid, err := syscall.Wait4(h.pid, nil, syscall.WNOHANG, nil); pid != 0 && err != syscall.EINTR {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
