package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/internal/pidfd"
	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/open"
	"golock/runner"
	"golock/signals"
)

// A holder process keeps the slot of golock acquire. It is this same program, in its own session,
// with none of the caller's files open. It takes the slot itself, so no slot is handed over. It
// talks to golock acquire over a socket:
//
//	request   what is wanted, in JSON            to the holder
//	message   a log line or the result, in JSON  from the holder
//	one byte  the ID has been printed            to the holder
//
// If the socket closes before the last message, the holder releases what it has.

// HolderName is the first argument of a holder process.
const HolderName = "golock-holder"

// A holder process has these descriptors. Its standard streams are /dev/null.
const (
	holderSocket  = 3
	holderProcess = 4 // the pidfd of the process of --for
)

// holderRequest says what a holder has to take.
type holderRequest struct {
	Address   string // the URL may have secrets, so it is not on the command line
	Request   locks.Request
	Process   int // the PID of the process of --for
	Jitter    time.Duration
	WaitLimit time.Duration
	Pace      term.Pace // when and how the holder reports its progress
	JSON      bool      // the caller's log format
}

// holderMessage is what a holder reports: one of Result, Log, Say and Progress is set.
type holderMessage struct {
	Result *result `json:",omitempty"` // the last message
	Warn   bool    `json:",omitempty"`
	Log    string  `json:",omitempty"`
	Pairs  []any   `json:",omitempty"`
	Say    string  `json:",omitempty"`

	Progress *runner.WaitProgress `json:",omitempty"`
	More     int                  `json:",omitempty"` // the number of holders that Progress leaves out
	Line     bool                 `json:",omitempty"` // a line about the waiting is due
}

// namedHolders is how many holders a line about waiting names at most (locks.HoldersText).
const namedHolders = 3

// result is the outcome of the attempt to take a slot.
type result struct {
	Slot   *heldSlot // nil if there is no slot
	Code   int       // the exit code, without regard to -E
	Kind   runner.Kind
	Signal syscall.Signal // the signal that ended the waiting
	Text   string         // the error
}

// Holder does the work of a holder process.
func Holder() Exit { return runProgram(holderMain) }

// holder sends the messages of a holder process to golock acquire.
type holder struct {
	socket     int
	resultSent bool // golock acquire does not read any more
}

// maxUnread limits the messages that golock acquire has not read. There is always room for the result, even
// if golock acquire is stopped (Ctrl-Z) and reads nothing for hours.
const maxUnread = 64 << 10

// maxRequest limits the request that a holder reads. Arguments and variables have room in it.
const maxRequest = 4 << 20

// send sends a message, or drops it if there is no room. It returns no error, because runner.Holder notices
// by itself that golock acquire is gone.
func (h *holder) send(m holderMessage) {
	text, _ := json.Marshal(m)
	unread, _ := unix.IoctlGetInt(h.socket, unix.TIOCOUTQ)
	isResult := m.Result != nil
	hasRoom := isResult || unread+len(text) <= maxUnread
	if h.resultSent || !hasRoom {
		return
	}
	h.resultSent = isResult
	text = append(text, '\n') // there is room for all of it
	err := unix.Sendto(h.socket, text, unix.MSG_NOSIGNAL, nil)
	if err == unix.EPERM || err == unix.ENOSYS { // a seccomp profile; golock acquire waits for this message
		_, _ = unix.Write(h.socket, text)
	}
}

// report sends the progress of waiting. There may be more holders than a message has room for.
func (h *holder) report(w *runner.WaitProgress, line bool) {
	if w == nil {
		return
	}
	m := holderMessage{Progress: new(*w), Line: line}
	m.Progress.Holders = w.Holders[:min(len(w.Holders), namedHolders)]
	m.More = len(w.Holders) - len(m.Progress.Holders)
	h.send(m)
}

// holderMain is the program of a holder process.
func holderMain(out *term.Printer) error {
	kind, err := unix.GetsockoptInt(holderSocket, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return usageError{fmt.Errorf("%s is started by golock acquire only", HolderName)}
	}
	unix.CloseOnExec(holderSocket)
	unix.CloseOnExec(holderProcess)
	// Without KeepAlive the garbage collector could close the socket, and another file could get its number.
	socket := os.NewFile(holderSocket, "socket")
	defer runtime.KeepAlive(socket)
	var request holderRequest
	err = json.NewDecoder(io.LimitReader(socket, maxRequest)).Decode(&request)
	if err != nil {
		return nil // golock acquire is gone
	}
	r := request.Request
	stored := locks.Stored{Claim: r.Claim, Replace: r.Replace, TTL: r.TTL, Hold: r.Hold}
	if err := stored.Check(); err != nil {
		return usageError{fmt.Errorf("%s is started by golock acquire only: %w", HolderName, err)}
	}
	_ = unix.SetNonblock(holderSocket, true)
	out.JSON = request.JSON
	h := &holder{socket: holderSocket}
	o := h.hold(request, out)
	h.send(holderMessage{Result: &result{Code: exitOfRun(o).Code, Kind: o.Kind, Signal: o.Signal, Text: fmt.Sprint(o.Err)}})
	return nil
}

// hold takes the slot and keeps it.
func (h *holder) hold(request holderRequest, out *term.Printer) runner.Outcome {
	store, err := open.Store(request.Address)
	if err != nil {
		return runner.Outcome{Kind: runner.Refused, Err: err}
	}
	relay, err := signals.NewRelay(signals.NoTerminal)
	if err != nil {
		return runner.Outcome{Kind: runner.Refused, Err: err}
	}
	relay.Catch()
	slotHolder := &runner.Holder{
		Run: &runner.Run{
			Store: locks.Know(store), Address: request.Address, Request: request.Request,
			Jitter: request.Jitter, WaitLimit: request.WaitLimit, Relay: relay, Sockets: socketDir,
			Log: func(warn bool, message string, pairs ...any) {
				m := holderMessage{Warn: warn, Log: message}
				for _, p := range pairs {
					m.Pairs = append(m.Pairs, out.LogValue(p))
				}
				h.send(m)
			},
			Say:        func(message string) { h.send(holderMessage{Say: message}) },
			OnProgress: request.Pace.OnProgress(h.report),
		},
		Process: pidfd.Inherited(holderProcess, request.Process), Caller: holderSocket,
		Granted: func(g locks.Grant, t locks.Term) {
			h.send(holderMessage{Result: &result{Slot: new(slotOf(g, t))}})
		},
	}
	return slotHolder.Do()
}

// abandonLimit limits how long golock acquire waits for the end of a holder process that it no longer
// needs. By then the holder has left the queue, or is about to.
const abandonLimit = 80 * time.Millisecond

// startHolder starts the holder process and returns golock acquire's end of the socket.
func (c *acquireCommand) startHolder(run *runner.Run, out *term.Printer, process *pidfd.Process) (*os.File, error) {
	text, _ := json.Marshal(holderRequest{
		Address: run.Address, Request: run.Request, Process: process.PID(), Jitter: run.Jitter, WaitLimit: run.WaitLimit,
		Pace: out.PaceOf(), JSON: out.JSON,
	})
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(pair[1])
	socket := os.NewFile(uintptr(pair[0]), "holder")
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, needs("golock acquire", os.DevNull, "mount /dev here", err)
	}
	defer null.Close()
	fds, _ := procfs.FDs(0)
	for _, fd := range fds { // a process that waits for the end of a pipe must not wait for the holder
		if fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	run.Relay.AsCaller(func() {
		argv := []string{HolderName, run.Request.Name, "for", c.For.text()}
		_, err = syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
			Dir: "/", Env: os.Environ(),
			Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), uintptr(pair[1]), uintptr(process.FD())},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
	})
	if err != nil {
		return nil, needs("golock acquire", "/proc", "mount -t proc proc /proc", err)
	}
	_, _ = socket.Write(text) // if the holder has ended, awaitHolder finds out
	return socket, nil
}

// awaitHolder prints what the holder reports. It returns the slot. If there is no slot, it returns the
// outcome and how golock ends.
func awaitHolder(socket *os.File, relay *signals.Relay, out *term.Printer) (slot *heldSlot, o runner.Outcome, end Exit) {
	const isDue = false
	defer out.Report(nil, isDue) // the waiting is over
	relay.Watch(int(socket.Fd()))
	from := bufio.NewReaderSize(socket, 2*maxUnread)
	for {
		if from.Buffered() == 0 {
			sig, _ := relay.Next(-1)
			switch {
			case signals.EndsWaiting(sig):
				o = runner.Outcome{Kind: runner.Interrupted, Signal: sig}
				return nil, o, exitOfRun(o)
			case sig != 0:
				continue
			}
		}
		var m holderMessage
		line, err := from.ReadSlice('\n') // the holder sends whole lines, none of which is longer
		if err == nil {
			err = json.Unmarshal(line, &m)
		}
		switch {
		case err != nil:
			o = runner.Outcome{Kind: runner.Fault, Err: errors.New("the process that was to hold the slot has ended")}
			return nil, o, exitOfRun(o)
		case m.Result != nil:
			r := m.Result
			o = runner.Outcome{Kind: r.Kind, Signal: r.Signal, Err: errors.New(r.Text)}
			return r.Slot, o, Exit{Code: r.Code, Signal: r.Signal}
		case m.Progress != nil:
			more := min(max(m.More, 0), locks.MaxUnits)
			m.Progress.Holders = append(m.Progress.Holders, make([]locks.Entry, more)...)
			out.Report(m.Progress, m.Line)
		case m.Say != "":
			out.Say(m.Say)
		default:
			out.Log(m.Warn, m.Log, m.Pairs...)
		}
	}
}

// abandonHolder tells the holder that nobody needs the slot. It waits at most abandonLimit for the end of
// the holder.
func abandonHolder(socket *os.File) {
	fd := int(socket.Fd())
	_ = unix.Shutdown(fd, unix.SHUT_WR)
	time.AfterFunc(abandonLimit, func() { _ = unix.Shutdown(fd, unix.SHUT_RD) })
	_, _ = io.Copy(io.Discard, socket) // the copy ends when the holder ends
}
