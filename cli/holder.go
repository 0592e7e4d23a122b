package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/locks"
	"golock/locks/open"
	"golock/runner"
	"golock/signals"
)

// Holder is golock as a holder process (see holder_client.go).
func Holder() int { return recovered(hold) }

// holder is the holder's end of the socket.
type holder struct {
	granted bool // then nobody listens any more
}

func hold(*term.Printer) error {
	if kind, err := unix.GetsockoptInt(holderSocket, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
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
	h := &holder{}
	relay, err := signals.NewRelay(false)
	if err != nil {
		return h.sendResult(runner.Outcome{Kind: runner.Refused, Err: err})
	}
	relay.Catch()
	store, err := open.Store(request.Address)
	if err != nil {
		return h.sendResult(runner.Outcome{Kind: runner.Refused, Err: err})
	}
	keep := &runner.Holder{
		Run: &runner.Run{
			Store: store, Address: request.Address, Request: request.Request, Jitter: request.Jitter, Wait: request.Wait, Relay: relay,
			Sockets: socketDir, Log: h.log, Say: h.say,
			Waits: request.Pace.Waits(func(w *runner.Waiting, line bool) {
				_ = h.send(holderMessage{Waits: w, Line: line, Over: w == nil})
			}),
		},
		Process: holderProcess, Caller: holderSocket,
		Granted: func(g locks.Grant) error {
			h.granted = true
			return h.send(holderMessage{Result: &result{ID: g.Ref.String()}})
		},
	}
	if o := keep.Do(); !h.granted {
		return h.sendResult(o)
	}
	return nil
}

func (h *holder) send(m holderMessage) error {
	text, err := json.Marshal(m)
	if err == nil {
		err = unix.Sendto(holderSocket, text, unix.MSG_NOSIGNAL, nil)
	}
	return err
}

func (h *holder) sendResult(o runner.Outcome) error {
	r := resultOf(o)
	return h.send(holderMessage{Result: &r})
}

func (h *holder) log(warn bool, message string, pairs ...any) {
	if h.granted {
		return
	}
	m := holderMessage{Warn: warn, Log: message}
	for _, p := range pairs {
		m.Pairs = append(m.Pairs, fmt.Sprint(term.LogValue(p)))
	}
	_ = h.send(m)
}

func (h *holder) say(message string) {
	if !h.granted {
		_ = h.send(holderMessage{Say: message})
	}
}
