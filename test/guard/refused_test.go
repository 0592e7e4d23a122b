//go:build integration

package guard_test

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// The kernel or a seccomp profile refuses a system call once in each process of a run: no command
// outlives its slot, and nothing hangs. strace refuses it, in a pid namespace and as a user without
// rights: a refused call once made golock kill all processes that it could reach. Each call is refused in
// one of the scenarios, those that send signals in all; in the deep run with each error in each of them.
func TestRefusedSystemCalls(t *testing.T) {
	calls := strings.Fields("recvfrom sendto ppoll wait4 waitid timerfd_settime timerfd_create kill prctl " +
		"pidfd_open pidfd_send_signal dup3 clone unlinkat setpgid getdents64 openat fstat execve")
	errnos := []string{"EPERM", "ENOSYS", "EAGAIN", "ENOMEM"}
	// In the scripts run is golock run with the refusal, next one without. They print the number of
	// processes that are alive although the slot was free.
	scenarios := []struct{ name, script string }{
		{"golock killed", `run -v -- sh -c 'setsid sleep 1000 & echo $PPID >pid; exec sleep 1000' &
			while kill -0 $! 2>/dev/null && ! [ -s pid ]; do sleep 0.1; done
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
			switch {
			case testkit.Deep():
			case signals: // golock ends a run by them
				errnos = errnos[i%2:][:1]
			case (i+j)%len(scenarios) == 0: // each call once
				errnos = errnos[j%len(errnos):][:1]
			default:
				continue
			}
			for _, errno := range errnos {
				t.Run(scenario.name+"/"+call+"/"+errno, func(t *testing.T) {
					t.Parallel()
					refused(t, redistest.StoreURL(t), scenario.script, call, errno)
				})
			}
		}
		for j, call := range []string{"pidfd_open", "pidfd_send_signal"} { // the watchdog of other stores is the same one
			if !testkit.Covers(i, j, 2) {
				continue
			}
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
		next() { golock run --store "$STORE" --name job --ttl 5s -w 50 "$@"; }
		`
	when := ":when=1"
	switch call {
	case "wait4", "waitid", "prctl":
		when = ":when=2" // a run makes the first one before it takes the slot
	case "pidfd_open", "pidfd_send_signal":
		when = "" // a seccomp profile refuses always, and kill(2) is left
	}
	r := s.Exec("unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
		"setpriv", "--reuid=20001", "--regid=20001", "--clear-groups", "sh", "-c", functions+script).
		Setenv("STORE="+s.Store, "CALL="+call, "ERRNO="+errno, "WHEN="+when).Run()
	if out := strings.TrimSpace(r.Stdout); out != "0" {
		t.Errorf("left running: %q; %v", out, r)
	}
}

// A system call is refused always, as by a seccomp profile, in golock, its watchdog, its holder process
// and the command: golock works, or ends at once with a code of its own and one line. It leaves neither
// a process nor a slot, still obeys TERM and does not spin.
func TestAlwaysRefused(t *testing.T) {
	calls := strings.Fields("ppoll waitid prctl setpgid wait4 kill socketpair sendto getsockopt timerfd_settime " +
		"write fcntl epoll_create1 eventfd2 clone,clone3")
	errnos := []string{"EPERM", "ENOSYS"}
	deep := testkit.Deep()
	if deep {
		calls = append(calls, strings.Fields("timerfd_create pipe2 recvfrom getppid flock fstatfs getdents64 readlinkat bind listen accept4 "+
			"getsockname getpeername dup3 unlinkat uname pidfd_open pidfd_send_signal fstat statx setsockopt faccessat2 poll "+
			"epoll_ctl getpgid getsid clock_nanosleep tgkill gettid prlimit64 umask getrandom pwrite64 setsid chdir ioctl")...)
	}
	// The lean program has all code for local, and becomes the full one for Redis.
	for program, path := range map[string]string{"full": testkit.Golock, "lean": lean} {
		stores := map[string]string{"local": "local://" + testkit.Place(t, 0o777), "redis": redistest.StoreURL(t)}
		if deep {
			stores["mkdir"] = "mkdir://" + testkit.Place(t, 0o777)
		}
		for i, kind := range slices.Sorted(maps.Keys(stores)) {
			if !deep && (program == "lean") != (kind == "local") {
				continue
			}
			for j, call := range calls {
				for k, errno := range errnos {
					if !deep && k != (i+j)%len(errnos) { // one of them for each
						continue
					}
					t.Run(strings.Join([]string{program, kind, call, errno}, "/"), func(t *testing.T) {
						t.Parallel()
						alwaysRefused(t, path, stores[kind], call, errno)
					})
				}
			}
		}
	}
}

// alwaysRefusedScript prints what judgeRefused reads, a line for each step.
const alwaysRefusedScript = `
	refused="strace -qq -D -f -o calls -e signal=none -e trace=$CALL -e inject=$CALL:error=$ERRNO"
	$refused $GOLOCK run --name $LOCK -- sh -c 'exit 7' 2>end; echo end $?
	began=$(date +%s%3N)
	$refused $GOLOCK run --name $LOCK --kill-after 5 -- sh -c 'echo >started; exec sleep 1000' 2>term & pid=$!
	# Who has said something has five seconds to end: TERM would replace its code.
	for i in $(seq 600); do
		[ ! -s started ] && kill -0 $pid || break
		[ ! -s term ] || said=$((said + 1))
		[ "${said:-0}" -lt 50 ] || break
		sleep .1
	done 2>/dev/null
	if [ -s started ]; then $GOLOCK run --name $LOCK -n -- true 2>/dev/null; echo busy $?; fi
	kill -TERM $pid 2>/dev/null
	wait $pid; echo term $?
	# Go's runtime names each piece of memory that it gets, in all its processes, and ignores a refusal.
	echo calls $(($(grep -vc PR_SET_VMA calls) * 1000 / (1000 + $(date +%s%3N) - began)))
	$refused $GOLOCK acquire --name $LOCK --for $$ >id 2>acquire; echo acquire $?
	if [ -s id ]; then $GOLOCK release $(cat id); echo release $?; fi
	$GOLOCK run --name $LOCK -w 30 -- true; echo next $?
	for i in $(seq 50); do # what has been killed may need a moment
		left=$(ps -eo comm= | grep -c '^sleep\|^golock\|^lean')
		[ $left != 0 ] || break
		/bin/sleep .1
	done
	echo left $left`

func alwaysRefused(t *testing.T, program, store, call, errno string) {
	s := testkit.OnStore(t, store)
	testkit.Must(t, os.Chmod(s.Dir, 0o777))
	r := s.Exec("unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
		"setpriv", "--reuid=daemon", "--regid=daemon", "--clear-groups", "sh", "-c", alwaysRefusedScript).
		Setenv("GOLOCK="+program, "CALL="+call, "ERRNO="+errno, "LOCK="+strings.ReplaceAll(t.Name(), "/", ".")).Run()
	success := map[string]int{"end": 7, "busy": 75, "term": 143, "acquire": 0, "release": 0, "next": 0, "left": 0}
	const spinning = 30 // refused calls in a second; golock looks 20 times (signals.RefusedPause)
	steps := 0
	for line := range strings.Lines(r.Stdout) {
		steps++
		step, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, err := strconv.Atoi(text)
		testkit.Must(t, err)
		said := s.Read(step)
		switch {
		case step == "calls" && number < spinning:
		case number == success[step] && said == "":
		case (number == 69 || number == 70) && strings.HasPrefix(said, "golock: ") && strings.Count(said, "\n") == 1:
		default:
			t.Errorf("%s: %d, %.2000q", step, number, said)
		}
	}
	if r.Code != 0 || steps < 5 {
		t.Errorf("%v", r)
	}
}
