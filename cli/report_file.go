package cli

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"golock/cli/report"
	"golock/cli/term"
	"golock/config"
	"golock/internal/eintr"
	"golock/locks"
	"golock/runner"
	"golock/signals"
)

// openReport opens the file of --report, before anything is locked. It returns -1 without --report. It
// never follows a symbolic link: the link's owner could lead golock anywhere. A FIFO without a reader
// must not block the run. The names of standard output and error are links too, but stand for what
// golock has open.
func openReport(v *config.Values) (fd int, err error) {
	path, err := v.Path("report")
	if err != nil || path == "" {
		return -1, err
	}
	if path == "-" {
		return -1, v.Errorf("report", `"-" is not standard output here: name /dev/stdout, or ./- for a file`)
	}
	if stream := standardStream(path); stream >= 0 {
		return duplicateStream(v, path, stream)
	}
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK |
		unix.O_NOCTTY
	fd, err = eintr.Get(func() (int, error) { return unix.Open(path, flags, 0o666) })
	switch {
	case err == unix.ELOOP && isSymbolicLink(path):
		err = v.Errorf("report", "%q is a symbolic link, which is not followed: name the file itself", path)
	case err != nil:
		err = v.Errorf("report", "cannot append to %q: %v", path, err)
	case mayBeBlockDevice(fd):
		err = v.Errorf("report", "%q is a block device", path)
	}
	return fd, err
}

func isSymbolicLink(path string) bool {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

func mayBeBlockDevice(fd int) bool {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return err != nil || st.Mode&unix.S_IFMT == unix.S_IFBLK
}

// standardStream returns the descriptor of the standard output or error that a path names, otherwise -1.
func standardStream(path string) int {
	switch path {
	case "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1":
		return 1
	case "/dev/stderr", "/dev/fd/2", "/proc/self/fd/2":
		return 2
	}
	return -1
}

// duplicateStream duplicates a standard stream. Opening its name instead would fail for a socket, such
// as the journal's, and would write a file from its beginning.
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

// maxReportHolders is the largest number of holders in a line. A lock may have thousands.
const maxReportHolders = 16

// outcomeText returns the outcome of a run in the words of a report.
func outcomeText(o *runner.Outcome) string {
	switch {
	case o.Unreachable:
		return report.OutcomeUnavailable
	case o.Unlocked && o.Kind == runner.Ended:
		return report.OutcomeUnlocked
	}
	return string(o.Kind)
}

// reportHolders describes whom a run waited for. user is the name of this user. Names of other users of this machine
// are not looked up: a directory service may take seconds.
func reportHolders(entries []locks.Entry, user string) (all []report.Holder) {
	for _, e := range entries[:min(len(entries), maxReportHolders)] {
		h := report.Holder{Host: e.Host, PID: e.PID, User: e.User, Command: append([]string{}, e.Command...), Note: e.Note, Unkept: e.HasNoProcess()}
		if e.Ref != (locks.Ref{}) { // entries of a plain lock have no ID
			h.ID = e.Ref.String()
		}
		switch {
		case h.User != "" || e.UID < 0:
		case e.UID == os.Geteuid():
			h.User = user
		default:
			h.User = strconv.Itoa(e.UID)
		}
		all = append(all, h)
	}
	return all
}

// appendReport writes the line of a run; code is golock's exit code. It appends the line in one call,
// so that lines of several writers do not mix. If the disk is full, a part of the line may stay:
// removing it could remove what another run has appended since.
func appendReport(fd int, run *runner.Run, o runner.Outcome, code int) error {
	ref := o.Grant.Ref
	if ref == (locks.Ref{}) { // the run got no slot
		ref = run.Request.Ref
	}
	line := report.Line{
		Name: run.Request.Name, Store: run.Store.URL(), ID: ref.String(),
		Since: o.Began, Waited: term.Seconds(o.Waited), Ran: term.Seconds(o.Ran),
		ExitCode: code, Outcome: outcomeText(&o), Slots: append([]int{}, o.Grant.Slots...), Fence: o.Grant.Fence,
		Unlocked: o.Unlocked, PID: os.Getpid(), Command: run.Argv, Note: run.Request.Note,
	}
	if len(run.Earlier) > 0 {
		line.Names = run.Names()
	}
	line.Host, _ = os.Hostname()
	line.User = run.User
	if line.User == "" {
		line.User = strconv.Itoa(os.Geteuid())
	}
	line.WaitedFor = reportHolders(o.WaitedFor, line.User)
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
