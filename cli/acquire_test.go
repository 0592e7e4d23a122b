package cli

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/locks"
	"golock/runner"
	"golock/signals"
	"golock/test/testkit"
)

// A golock acquire gets the result also if it was stopped for long while it waited, and if it waits
// for thousands of holders.
func TestResultFindsRoom(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	testkit.Must(t, err)
	testkit.Must(t, unix.SetNonblock(pair[1], true))
	h := &holder{socket: pair[1]}
	holders := make([]locks.Entry, 5000)
	for i := range holders {
		holders[i].Command = []string{"a command", "with arguments"}
	}
	for range 10_000 {
		h.report(&runner.WaitProgress{Name: "backup", Holders: holders}, false)
	}
	h.send(holderMessage{Result: &result{Slot: &heldSlot{ID: "an ID"}}})
	testkit.Must(t, unix.Close(pair[1]))
	relay, err := signals.NewRelay(false)
	testkit.Must(t, err)
	socket := os.NewFile(uintptr(pair[0]), "holder")
	defer socket.Close()
	if slot, o, _ := awaitHolder(socket, relay, &term.Printer{}); slot == nil || slot.ID != "an ID" {
		t.Errorf("%+v, %+v", slot, o)
	}
}

// The ID is printed also into a full pipe that does not block its writers.
func TestPrintIDWaitsForItsReader(t *testing.T) {
	var pipe [2]int
	testkit.Must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	defer unix.Close(pipe[0])
	room := make([]byte, 4096)
	for err := error(nil); err == nil; {
		_, err = unix.Write(pipe[1], room)
	}
	stdout, err := unix.FcntlInt(uintptr(unix.Stdout), unix.F_DUPFD_CLOEXEC, 3)
	testkit.Must(t, err)
	testkit.Must(t, unix.Dup3(pipe[1], unix.Stdout, 0))
	unix.Close(pipe[1])
	time.AfterFunc(50*time.Millisecond, func() {
		for err := error(nil); err == nil; {
			_, err = unix.Read(pipe[0], room)
		}
	})
	err = (&acquireCommand{}).printSlot(heldSlot{ID: "an ID"}, "")
	testkit.Must(t, unix.Dup3(stdout, unix.Stdout, 0))
	unix.Close(stdout)
	if err != nil {
		t.Error(err)
	}
}
