package check

import (
	"os"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
)

// kill kills the run's tool and nothing else, with KILL. The tool is the process
// that was started, or, if that is a shell, also what the shell has started;
// never the child of the test, which must get along without its tool.
func (r *run) kill(p *os.Process) {
	var tools []int
	if !r.tool.Golock {
		tools = childrenOf(p.Pid)
	}
	_ = p.Kill() // first: a shell would go on in its script
	for _, fd := range tools {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		unix.Close(fd)
	}
}

// childrenOf gives a descriptor of each child process of a process, but not of
// those that are children of a test.
func childrenOf(pid int) (fds []int) {
	children, _ := procfs.Children(pid)
	for _, child := range children {
		fd, err := unix.PidfdOpen(child, 0)
		if err != nil {
			continue
		}
		// The number may have become another's before it was opened.
		if s, _ := procfs.ReadStat(child); s.Parent != pid || isChild(child) {
			unix.Close(fd)
			continue
		}
		fds = append(fds, fd)
	}
	return fds
}

func isChild(pid int) bool {
	words := procfs.Command(pid)
	return len(words) > 1 && words[1] == ChildName
}
