package cli

import (
	"cmp"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/config"
	"golock/internal/eintr"
	"golock/locks"
	"golock/runner"
	"golock/signals"
)

// openReport opens the file of --report before anything is locked; -1: there is none. A
// link is never followed: its owner could lead golock anywhere. A FIFO without a
// reader must not block the run. The names of standard output and error are links, but
// mean what golock has open.
func openReport(v *config.Values) (fd int, err error) {
	path := v.Text("report")
	if path == "" {
		return -1, nil
	}
	if stream := standardStream(path); stream >= 0 {
		return duplicateStream(v, path, stream)
	}
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK |
		unix.O_NOCTTY
	fd, err = eintr.Get(func() (int, error) { return unix.Open(path, flags, 0o666) })
	var st unix.Stat_t
	switch {
	case err == unix.ELOOP && unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK:
		err = v.Errorf("report", "%q is a symbolic link, which is not followed: name the file itself", path)
	case err != nil:
		err = v.Errorf("report", "cannot append to %q: %v", path, err)
	case unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFBLK:
		err = v.Errorf("report", "%q is a block device", path)
	}
	return fd, err
}

// standardStream is the descriptor of the standard stream that a path names; -1: it names none.
func standardStream(path string) int {
	switch path {
	case "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1":
		return 1
	case "/dev/stderr", "/dev/fd/2", "/proc/self/fd/2":
		return 2
	}
	return -1
}

// duplicateStream duplicates a standard stream. To open its name would fail for a socket, as the
// journal's, and would begin a file anew.
func duplicateStream(v *config.Values, path string, stream int) (int, error) {
	flags, err := unix.FcntlInt(uintptr(stream), unix.F_GETFD, 0)
	if err == nil && flags&unix.FD_CLOEXEC != 0 {
		err = unix.EBADF // package entry has opened /dev/null for a stream that the caller had closed
	}
	fd := -1
	if err == nil {
		fd, err = unix.FcntlInt(uintptr(stream), unix.F_DUPFD_CLOEXEC, 3)
	}
	if err != nil {
		return -1, v.Errorf("report", "cannot write to %q: %v", path, err)
	}
	return fd, nil
}

// reportLine is what a report tells of one run that asked for a slot; times are seconds.
type reportLine struct {
	Name     string    `json:"name"`
	Store    string    `json:"store"`
	ID       string    `json:"id"`
	Since    time.Time `json:"since"`  // when golock began to wait
	Waited   float64   `json:"waited"` // for the slot, or until golock gave up
	Ran      float64   `json:"ran"`
	ExitCode int       `json:"exit_code"` // golock's
	Signal   string    `json:"signal"`    // that the command died of, or that ended the waiting; "": none
	Outcome  string    `json:"outcome"`
	Slots    []int     `json:"slots"`
	Fence    int64     `json:"fence"`
	Unlocked bool      `json:"unlocked,omitempty"`
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	User     string    `json:"user"`
	Command  []string  `json:"command"`
	Note     string    `json:"note,omitempty"`

	// WaitedFor is who held the slot when the run began to wait, or was turned away.
	WaitedFor []reportHolder `json:"waited_for,omitempty"`
}

// reportHolder is what a report tells of somebody who held a slot.
type reportHolder struct {
	ID      string   `json:"id"`
	Host    string   `json:"host"`
	PID     int      `json:"pid"`
	User    string   `json:"user"`
	Command []string `json:"command"`
	Note    string   `json:"note,omitempty"`
}

// maxReportHolders is how many holders a line tells at most. A lock may have thousands.
const maxReportHolders = 16

// The outcomes that a report knows beside the kinds of runner.
const (
	outcomeUnavailable = "unavailable" // the store was out of reach, or refused for a reason that passes
	outcomeUnlocked    = "unlocked"    // the command ran without a slot, and ended
)

// outcomeText is the outcome of a run in a report.
func outcomeText(o *runner.Outcome) string {
	switch {
	case o.Unreachable:
		return outcomeUnavailable
	case o.Unlocked && o.Kind == runner.Ended:
		return outcomeUnlocked
	}
	return string(o.Kind)
}

// reportHolders describes whom a run waited for.
func reportHolders(entries []locks.Entry) (all []reportHolder) {
	for _, row := range term.Rows(entries[:min(len(entries), maxReportHolders)]) {
		all = append(all, reportHolder{ID: row.ID, Host: row.Host, PID: row.PID, User: row.User, Command: row.Command, Note: row.Note})
	}
	return all
}

// appendReport writes the line of a run; code is golock's exit code. It appends in one call:
// the kernel keeps lines of several writers whole. Of a line that the disk has no room
// for a part may stay: to remove it could remove what another run has appended since.
func appendReport(fd int, run *runner.Run, o runner.Outcome, code int) error {
	line := reportLine{
		Name: run.Request.Name, Store: run.Store.URL(), ID: cmp.Or(o.Grant.Ref, run.Request.Ref).String(),
		Since: o.Began, Waited: term.Seconds(o.Waited), Ran: term.Seconds(o.Ran),
		ExitCode: code, Outcome: outcomeText(&o), Slots: append([]int{}, o.Grant.Slots...), Fence: o.Grant.Fence,
		Unlocked: o.Unlocked, PID: os.Getpid(), Command: run.Argv, Note: run.Request.Note, WaitedFor: reportHolders(o.WaitedFor),
	}
	line.Host, _ = os.Hostname()
	line.User = cmp.Or(run.User, strconv.Itoa(os.Geteuid()))
	switch {
	case o.Kind == runner.Interrupted:
		line.Signal = signals.Name(o.Signal)
	case o.Ran > 0 && o.Status.Signaled():
		line.Signal = signals.Name(o.Status.Signal())
	}
	text := term.JSONText(line, "")
	n, err := eintr.Get(func() (int, error) { return unix.Write(fd, []byte(text)) })
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	return err
}
