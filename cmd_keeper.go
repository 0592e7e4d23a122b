package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/open"
	"golock/runner"
	"golock/signals"
)

// keep is golock as the keeper of a slot (see keeping.go), which no user ever
// calls.
func keep(out *printer) int {
	if kind, err := unix.GetsockoptInt(keeperSocket, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return out.exit(usageError{fmt.Errorf("%s is started by golock acquire only", keeperName)})
	}
	unix.CloseOnExec(keeperSocket)
	unix.CloseOnExec(keeperProcess)
	// A file that nobody refers to is closed by the collector, and its number
	// becomes another's.
	socket := os.NewFile(keeperSocket, "socket")
	defer runtime.KeepAlive(socket)
	var what order
	// The whole line: what is left of it would be taken for the next message.
	text, err := bufio.NewReader(socket).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &what)
	}
	if err != nil {
		return 0 // nobody is left who would want it
	}
	_ = unix.SetNonblock(keeperSocket, true)
	tell := func(m news) error {
		text, err := json.Marshal(m)
		if err == nil {
			err = unix.Sendto(keeperSocket, append(text, '\n'), unix.MSG_NOSIGNAL, nil)
		}
		return err
	}
	failed := func(o runner.Outcome) int {
		r := resultOf(o)
		_ = tell(news{Result: &r})
		return 0
	}
	relay, err := signals.NewRelay(false)
	if err != nil {
		return failed(runner.Outcome{Kind: runner.Refused, Err: err})
	}
	relay.Catch()
	store, err := open.Store(what.Address)
	if err != nil {
		return failed(runner.Outcome{Kind: runner.Refused, Err: err})
	}
	granted := false
	k := &runner.Keep{
		Run: &runner.Run{
			Store: store, Address: what.Address, Request: what.Request, Wait: what.Wait, Relay: relay,
			Sockets: func() (string, error) { return open.Directory(true) },
			Log: func(warn bool, message string, pairs ...any) {
				if granted {
					return // nobody listens
				}
				m := news{Warn: warn, Log: message}
				for _, p := range pairs {
					m.Pairs = append(m.Pairs, fmt.Sprint(plain(p)))
				}
				_ = tell(m)
			},
			Say: func(message string) {
				if !granted {
					_ = tell(news{Say: message})
				}
			},
		},
		Process: keeperProcess, Caller: keeperSocket,
		Granted: func(g locks.Grant) error {
			granted = true
			return tell(news{Result: &result{ID: g.Ref.String()}})
		},
	}
	k.Waits = what.Pace.waits(func(w *runner.Waiting, line bool) {
		_ = tell(news{Waits: w, Line: line, Over: w == nil})
	})
	o := k.Do()
	if !granted {
		return failed(o)
	}
	return 0
}
