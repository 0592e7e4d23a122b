//go:build integration

package guard_test

import (
	"os"
	"strings"
	"testing"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// The kernel or a seccomp profile refuses a system call once in each process of a run: no command
// outlives its slot, and nothing hangs. strace refuses it, in a pid namespace and as a user without
// rights: a refused call once made golock kill all processes that it could reach.
func TestRefusedSystemCalls(t *testing.T) {
	calls := strings.Fields("recvfrom sendto ppoll wait4 waitid timerfd_settime timerfd_create kill prctl " +
		"pidfd_open pidfd_send_signal dup3 clone unlinkat setpgid getdents64 openat fstat execve")
	errnos := []string{"EPERM", "ENOSYS", "EAGAIN", "ENOMEM"}
	// In the scripts run is golock run with the refusal, next one without. They print the number of
	// processes that are alive although the slot was free.
	scenarios := []struct{ name, script string }{
		{"golock killed", `run -v -- sh -c 'setsid sleep 1000 & echo $PPID >pid; exec sleep 1000' &
			while kill -0 $! 2>/dev/null && ! [ -s pid ]; do sleep .02; done
			if [ -s pid ]; then kill -9 $(ps -o ppid= -p $(cat pid)); fi
			next -- ps -eo comm= | grep -c ^sleep`},
		{"time limit", `run --tree --time-limit .3 --kill-after .2 -- sh -c 'trap "" TERM; setsid sleep 1000 & exec sleep 1000'
			ps -eo comm= | grep -c ^sleep`},
		{"normal end", `run -- sh -c 'sleep .1; exit 7'
			next -- true || echo busy; ps -eo comm= | grep -c ^sleep`},
	}
	for i, scenario := range scenarios {
		for j, call := range calls {
			errnos := errnos
			signals := call == "kill" || strings.HasPrefix(call, "pidfd")
			if !signals && os.Getenv("LOCKTEST_CAMPAIGN") == "" { // one of them for each
				errnos = errnos[(i+j)%len(errnos):][:1]
			}
			for _, errno := range errnos {
				t.Run(scenario.name+"/"+call+"/"+errno, func(t *testing.T) {
					t.Parallel()
					refused(t, redistest.StoreURL(t), scenario.script, call, errno)
				})
			}
		}
		for _, call := range []string{"pidfd_open", "pidfd_send_signal"} { // the watchdog of other stores is the same one
			t.Run(scenario.name+"/"+call+"/mkdir", func(t *testing.T) {
				t.Parallel()
				refused(t, "mkdir://"+testkit.Place(t, 0o777), scenario.script, call, "EPERM")
			})
		}
	}
}

func refused(t *testing.T, store, script, call, errno string) {
	s := testkit.New(t, store)
	testkit.Must(t, os.Chmod(s.Dir, 0o777))
	const functions = `
		run() { strace -f -o /dev/null -e trace="$CALL" -e inject="$CALL:error=$ERRNO$WHEN" golock run --store "$STORE" --name job --ttl 5s "$@"; }
		next() { golock run --store "$STORE" --name job --ttl 5s -w 30 "$@"; }
		`
	when := ":when=1"
	if strings.HasPrefix(call, "pidfd") {
		when = "" // a seccomp profile refuses always, and kill(2) is left
	}
	r := s.Exec("unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
		"setpriv", "--reuid=20001", "--regid=20001", "--clear-groups", "sh", "-c", functions+script).
		Setenv("STORE="+s.Store, "CALL="+call, "ERRNO="+errno, "WHEN="+when).Run()
	if out := strings.TrimSpace(r.Stdout); out != "0" {
		t.Errorf("left running: %q; %v", out, r)
	}
}
