package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/open"
	"golock/runner"
	"golock/signals"
)

// A holder process keeps the slot of golock acquire: this same program, in its
// own session, with none of the caller's files open. It takes the slot itself,
// so nothing is handed over. It talks to golock acquire over a socket:
//
//	request   what is wanted, in JSON            to the holder
//	message   a log line or the result, in JSON  from the holder
//	one byte  the ID has been printed            to the holder
//
// If the socket ends before the last, the holder releases whatever it has.

// HolderName is the first argument of a holder process.
const HolderName = "golock-holder"

// The descriptors of a holder, beside the standard ones, which are /dev/null.
const (
	holderSocket  = 3
	holderProcess = 4 // the pidfd of the process of --for
)

// holderRequest is what a holder is to take.
type holderRequest struct {
	Address string // the store's URL may have secrets: not for the command line
	Request locks.Request
	Jitter  time.Duration
	Wait    time.Duration
	Pace    term.Pace // of the progress of waiting
	JSON    bool      // the caller's log format
}

// holderMessage is what a holder reports: one of Result, Log, Say and Waits is set.
type holderMessage struct {
	Result *result `json:",omitempty"` // the last one
	Warn   bool    `json:",omitempty"`
	Log    string  `json:",omitempty"`
	Pairs  []any   `json:",omitempty"`
	Say    string  `json:",omitempty"`

	Waits *runner.Waiting `json:",omitempty"`
	Line  bool            `json:",omitempty"` // a line about it is due
}

// result is the outcome of the attempt to take a slot.
type result struct {
	ID     string // "": there is no slot
	Code   int    // the exit code without -E
	Kind   runner.Kind
	Signal syscall.Signal // that ended the waiting
	Text   string         // the error
}

func resultOf(o runner.Outcome) result {
	r := result{Code: codeOfRun(o), Kind: o.Kind, Signal: o.Signal}
	if o.Err != nil {
		r.Text = o.Err.Error()
	}
	return r
}

// Holder is golock as a holder process.
func Holder() int { return recovered(hold) }

// holder is the holder's end of the socket.
type holder struct {
	socket int
	done   bool // the result is sent: nobody listens any more
}

// maxUnread leaves room for the result, also if golock acquire is stopped (Ctrl-Z) and reads
// nothing for hours.
const maxUnread = 64 << 10

func (h *holder) send(m holderMessage) error {
	unread, _ := unix.IoctlGetInt(h.socket, unix.TIOCOUTQ)
	if h.done || m.Result == nil && unread > maxUnread {
		return nil
	}
	h.done = m.Result != nil
	text, err := json.Marshal(m)
	if err == nil {
		err = unix.Sendto(h.socket, text, unix.MSG_NOSIGNAL, nil)
	}
	return err
}

func hold(out *term.Printer) error {
	kind, err := unix.GetsockoptInt(holderSocket, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return usageError{fmt.Errorf("%s is started by golock acquire only", HolderName)}
	}
	unix.CloseOnExec(holderSocket)
	unix.CloseOnExec(holderProcess)
	// The collector closes a file that nobody refers to, and its number becomes
	// another's.
	socket := os.NewFile(holderSocket, "socket")
	defer runtime.KeepAlive(socket)
	var request holderRequest
	if json.NewDecoder(socket).Decode(&request) != nil {
		return nil // the caller is gone
	}
	_ = unix.SetNonblock(holderSocket, true)
	out.JSON = request.JSON
	h := &holder{socket: holderSocket}
	r := resultOf(h.hold(request, out))
	return h.send(holderMessage{Result: &r})
}

// hold takes the slot and keeps it.
func (h *holder) hold(request holderRequest, out *term.Printer) runner.Outcome {
	relay, err := signals.NewRelay(false)
	if err != nil {
		return runner.Outcome{Kind: runner.Refused, Err: err}
	}
	relay.Catch()
	store, err := open.Store(request.Address)
	if err != nil {
		return runner.Outcome{Kind: runner.Refused, Err: err}
	}
	keep := &runner.Holder{
		Run: &runner.Run{
			Store: store, Address: request.Address, Request: request.Request,
			Jitter: request.Jitter, Wait: request.Wait, Relay: relay, Sockets: socketDir,
			Log: func(warn bool, message string, pairs ...any) {
				m := holderMessage{Warn: warn, Log: message}
				for _, p := range pairs {
					m.Pairs = append(m.Pairs, out.LogValue(p))
				}
				_ = h.send(m)
			},
			Say: func(message string) { _ = h.send(holderMessage{Say: message}) },
			Waits: request.Pace.Waits(func(w *runner.Waiting, line bool) {
				if w != nil {
					_ = h.send(holderMessage{Waits: w, Line: line})
				}
			}),
		},
		Process: holderProcess, Caller: holderSocket,
		Granted: func(g locks.Grant) error { return h.send(holderMessage{Result: &result{ID: g.Ref.String()}}) },
	}
	return keep.Do()
}

// holderClient is golock acquire's end of the socket.
type holderClient struct {
	socket   *os.File
	messages chan holderMessage // closed when the holder has gone
	progress func(w *runner.Waiting, line bool)
}

// abandonLimit bounds the wait for the end of a holder that nobody needs: its
// place in the queue is gone then, or soon will be.
const abandonLimit = 80 * time.Millisecond

func (c *acquireCommand) startHolder(run *runner.Run, out *term.Printer, process int) (*holderClient, error) {
	pace := out.PaceOf()
	text, _ := json.Marshal(holderRequest{run.Address, run.Request, run.Jitter, run.Wait, pace, out.JSON})
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(pair[1])
	h := &holderClient{
		socket: os.NewFile(uintptr(pair[0]), "holder"), messages: make(chan holderMessage, 1), progress: out.Progress(pace),
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	fds, _ := procfs.FDs(0)
	for _, fd := range fds { // who waits for the end of a pipe must not wait for the holder
		if fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	run.Relay.AsCaller(func() {
		argv := []string{HolderName, run.Request.Name, "for", c.For.text()}
		_, err = syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
			Dir: "/", Env: os.Environ(),
			Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), uintptr(pair[1]), uintptr(process)},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("starting the process that holds the slot from /proc/self/exe: %w", err)
	}
	_, _ = h.socket.Write(text) // receive sees a holder that has ended
	go h.receive(run.Relay.Wake)
	return h, nil
}

// receive takes what the holder sends.
func (h *holderClient) receive(wake func()) {
	defer wake()
	defer close(h.messages)
	for from := json.NewDecoder(h.socket); ; wake() {
		var m holderMessage
		if from.Decode(&m) != nil {
			return
		}
		h.messages <- m
	}
}

// await prints what the holder reports and gives the result, or that of a signal.
func (h *holderClient) await(run *runner.Run) result {
	defer h.progress(nil, false)
	for {
		select {
		case m, ok := <-h.messages:
			switch {
			case !ok:
				return resultOf(runner.Outcome{Kind: runner.Fault, Err: errors.New("the process that was to hold the slot has ended")})
			case m.Result != nil:
				return *m.Result
			case m.Waits != nil:
				h.progress(m.Waits, m.Line)
			case m.Say != "":
				run.Say(m.Say)
			default:
				run.Log(m.Warn, m.Log, m.Pairs...)
			}
		default: // receive wakes the relay
			if sig, _ := run.Relay.Next(-1); signals.EndsWaiting(sig) {
				return resultOf(runner.Outcome{Kind: runner.Interrupted, Signal: sig})
			}
		}
	}
}

// abandon says that nobody needs the slot, and waits a moment for the end of the
// holder.
func (h *holderClient) abandon() {
	_ = unix.Shutdown(int(h.socket.Fd()), unix.SHUT_WR)
	time.AfterFunc(abandonLimit, func() { _ = unix.Shutdown(int(h.socket.Fd()), unix.SHUT_RD) })
	for range h.messages { // the socket ends with the holder
	}
}
