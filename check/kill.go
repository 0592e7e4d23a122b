package check

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
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
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, word := range strings.Fields(string(list)) {
		child, err := strconv.Atoi(word)
		if err != nil {
			continue
		}
		fd, err := unix.PidfdOpen(child, 0)
		if err != nil {
			continue
		}
		// The number may have become another's before it was opened.
		if parentOf(child) != pid || isChild(child) {
			unix.Close(fd)
			continue
		}
		fds = append(fds, fd)
	}
	return fds
}

func parentOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// isChild reports whether a process is a child of a test.
func isChild(pid int) bool {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	words := bytes.Split(line, []byte{0})
	return len(words) > 1 && string(words[1]) == ChildName
}
