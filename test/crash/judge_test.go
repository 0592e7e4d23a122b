package crash_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// This file pins nothing. It is testdata/judge.c once more, for machines that
// have no gcc.

const goJudge = "@judge"

func judgeMain(args []string) int {
	now := monotonic()
	in := []unix.PollFd{{Fd: 0, Events: unix.POLLIN}}
	switch {
	case len(args) > 1 && args[0] == "@after":
		var b [1]byte
		for {
			if _, err := unix.Read(3, b[:]); err != unix.EINTR {
				break
			}
		}
		unix.Close(3)
		_ = syscall.Exec(args[1], args[1:], os.Environ())
		return 127
	case len(args) == 1 && args[0] == "@spin":
		for i := 0; ; i++ {
			if i%1000000 == 0 {
				if n, _ := unix.Poll(in, 0); n > 0 {
					return 0
				}
			}
		}
	case len(args) != 5:
		return 2
	}
	token, mode := args[0], args[3]
	most, _ := strconv.Atoi(args[1])
	weight, _ := strconv.Atoi(args[2])
	hold, _ := strconv.ParseInt(args[4], 10, 64)
	violation := func(what, which string) { tell("v %s %s %s\n", token, what, which) }
	take := func(file string, how int16) {
		fd, err := unix.Open(file, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		if err != nil {
			violation("cannot open", file)
		} else if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: how}); err == unix.EAGAIN || err == unix.EACCES {
			violation("somebody else has", file)
		} else if err != nil {
			violation("cannot lock", file)
		}
	}
	if mode != "n" {
		slots := strings.Split(os.Getenv("GOLOCK_SLOTS"), ",")
		for _, slot := range slots {
			if n, err := strconv.Atoi(slot); err != nil || most != 0 && n >= most {
				violation("max", slot)
			}
			take("slot-"+slot, unix.F_WRLCK)
		}
		if len(slots) != weight {
			violation("weight", os.Getenv("GOLOCK_SLOTS"))
		}
		switch mode {
		case "s":
			take("mode", unix.F_RDLCK)
		case "x":
			take("mode", unix.F_WRLCK)
		}
	}
	fence := os.Getenv("GOLOCK_FENCE")
	if fence == "" {
		fence = "0"
	}
	tell("b %s %d %s %d\n", token, os.Getpid(), fence, now)
	for end := monotonic() + hold*1000; ; {
		left := int64(-1)
		if hold >= 0 {
			left = max(end-monotonic(), 0)
		}
		wait := unix.NsecToTimespec(left)
		timeout := &wait
		if hold < 0 {
			timeout = nil
		}
		if n, err := unix.Ppoll(in, timeout, nil); n > 0 || err != unix.EINTR {
			break
		}
	}
	tell("e %s %d\n", token, monotonic())
	return 0
}

func tell(format string, args ...any) {
	line := fmt.Appendf(nil, format, args...)
	if n, err := unix.Write(1, line); err != nil || n != len(line) || bytes.Count(line, []byte("\n")) != 1 {
		os.Exit(4)
	}
}

// monotonic is CLOCK_MONOTONIC in nanoseconds, the same in all processes.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
