//go:build integration

package campaign_test

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golock/test/testkit"
)

// Starts the golocks of a round, reads their output, and makes the faults of processes.

const notRun = -1000

func (r *round) start(u *run) {
	argv := append([]string{testkit.Golock}, u.flags...)
	argv = append(argv, r.command(u)...)
	if ahead := r.Ahead[u.Host]; ahead != 0 { // the process itself gets the clock, by its execve
		argv = append([]string{"unshare", "--time", "--boottime", strconv.FormatInt(ahead, 10), "--"}, argv...)
	}
	argv = append(r.site.enter(u.Host), argv...)
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir, c.Env = "/", environment
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: kill} // stopped ones would stay after a panic
	said, w, err := os.Pipe()
	if err == nil {
		defer w.Close()
		c.Stdout, c.Stderr = w, w
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	u.started = monotonic()
	if err == nil {
		started := make(chan error)
		starts <- func() { started <- c.Start() }
		err = <-started
	}
	if err != nil {
		u.ended, u.code, u.said = monotonic(), notRun, []string{err.Error()}
		return
	}
	u.process = c.Process
	if u.KilledWhen > 0 {
		at := u.started + int64(u.KilledWhen)
		time.AfterFunc(time.Duration(at-monotonic()), func() { _ = u.process.Kill() })
		r.faults = append(r.faults, fault{kind: killNewcomer, token: u.Token, host: -1, from: at, to: at})
	}
	go r.listen(u, said)
	r.golocks.Go(func() {
		err := c.Wait()
		left := living(r.lives(u.Name), u.Token)
		r.mu.Lock()
		defer r.mu.Unlock()
		u.ended, u.left, u.code = monotonic(), left, c.ProcessState.ExitCode()
		if ws, _ := c.ProcessState.Sys().(syscall.WaitStatus); err != nil && ws.Signaled() {
			u.code, u.killed = -int(ws.Signal()), ws.Signal() == syscall.SIGKILL && (u.struck || !u.mirrors)
		}
	})
}

// starts of golocks, which serveStarts carries out.
var starts = make(chan func())

// serveStarts starts golocks on a thread that lives as long as the test. The kernel kills a golock when the thread
// that has started it ends (PR_SET_PDEATHSIG, prctl(2)), and other threads do end: that of a server ends with the server.
func serveStarts() {
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
}

func (r *round) listen(u *run, said *os.File) {
	defer said.Close()
	for lines := bufio.NewScanner(said); lines.Scan(); {
		at, line := monotonic(), lines.Text()
		r.mu.Lock()
		switch {
		case strings.Contains(line, `"msg":"waiting"`):
			if u.queued == 0 {
				u.queued = at
			}
		case !strings.Contains(line, `"level":"info"`) && len(u.said) < 6:
			u.said = append(u.said, line)
		}
		r.mu.Unlock()
	}
}

func (r *round) flags(q *request) []string {
	list := []string{"run", "--store", r.site.url(q.Name, q.Host), "--name", r.site.name(q.Name)}
	list = append(list, "-v", "--log-format", "json")
	add := func(yes bool, words ...string) {
		if yes {
			list = append(list, words...)
		}
	}
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 6, 64) }
	add(q.Max == 0, "--shared")
	add(q.Max > 1, "--max", strconv.Itoa(q.Max))
	add(q.Weight > 1, "--weight", strconv.Itoa(q.Weight))
	add(q.Priority != 0, "--priority="+strconv.Itoa(q.Priority))
	add(q.NoWait, "-n")
	add(!q.NoWait && q.Wait > 0, "-w", seconds(q.Wait))
	add(q.MaxQueue >= 0, "--max-queue", strconv.Itoa(q.MaxQueue))
	add(q.Replace != "", "--replace", q.Replace)
	add(q.Hold > 0, "--hold", seconds(q.Hold))
	add(q.Limit > 0, "--time-limit", seconds(q.Limit))
	add(!q.Exec, "--kill-after", "0.2")
	add(q.Exec, "-F")
	add(q.Close, "-o")
	add(q.Tree, "--tree")
	add(r.leased, "--ttl", seconds(r.TTL))
	return list
}

// command is a request's (testdata/member.c).
func (r *round) command(u *run) []string {
	micros := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	argv := []string{"--", member, r.rec.socket, r.lives(u.Name)}
	argv = append(argv, strconv.Itoa(u.Token), micros(u.Lasts), strconv.Itoa(u.Code))
	if u.Stubborn {
		argv = append(argv, "T")
	}
	for _, d := range u.Daemons {
		argv = append(argv, "D:"+micros(d))
	}
	for _, d := range u.Children {
		argv = append(argv, "C:"+micros(d))
	}
	return argv
}

// strike is what a fault sends to the processes of a run.
type strike struct {
	golock, guard, command syscall.Signal
	lasts                  bool // then CONT
}

const (
	kill = syscall.SIGKILL
	stop = syscall.SIGSTOP
)

var strikes = map[kind]strike{
	killHolder:   {golock: kill},
	killWaiter:   {golock: kill},
	killEnding:   {golock: kill},
	killPair:     {golock: kill, command: kill},
	killGuard:    {guard: kill},
	killBoth:     {golock: kill, guard: kill},
	term:         {golock: syscall.SIGTERM},
	interrupt:    {golock: syscall.SIGINT},
	suspend:      {golock: syscall.SIGTSTP, lasts: true},
	stopHolder:   {golock: stop, lasts: true},
	stopWaiter:   {golock: stop, lasts: true},
	stopGuard:    {guard: stop, lasts: true},
	stopBoth:     {golock: stop, guard: stop, lasts: true},
	stopTree:     {golock: stop, guard: stop, command: stop, lasts: true},
	stopThenKill: {golock: stop, guard: kill, lasts: true}, // golock is continued, and finds its guard killed
	killStopped:  {golock: kill, guard: stop, lasts: true},
	killCommand:  {command: kill},
	stopCommand:  {command: stop, lasts: true},
}

func (r *round) make(f planned) {
	made := fault{kind: f.Kind, token: -1, host: -1, from: monotonic()}
	done := false
	if f.Kind == killHost {
		made.host, done = f.Pick%hosts, true
		r.killHost(made.host)
	} else if s, ok := strikes[f.Kind]; !ok {
		made.host, done = r.site.fault(f)
	} else if u, command := r.target(f); u != nil {
		r.mu.Lock()
		u.mirrors = u.mirrors || f.Kind == killCommand && !u.Exec
		u.struck = u.struck || s.golock == kill
		r.mu.Unlock()
		made.token, made.from = u.Token, monotonic()
		done = s.hit(f, u.process, command)
	}
	if made.to = monotonic(); done {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.faults = append(r.faults, made)
	}
}

// hit sends the signals as near together as can be, and reports whether one came.
func (s strike) hit(f planned, golock, command *os.Process) (done bool) {
	var guard *os.Process
	if s.guard != 0 {
		if guard = guardOf(golock); guard == nil {
			return false
		}
	}
	if f.Kind == killEnding {
		time.Sleep(f.After) // the fault
	}
	type sent struct {
		to  *os.Process
		sig syscall.Signal
	}
	all := []sent{{command, s.command}, {guard, s.guard}, {golock, s.golock}}
	if f.Kind == killPair && f.Pick%2 > 0 {
		slices.Reverse(all)
	}
	for _, one := range all {
		done = one.sig != 0 && one.to.Signal(one.sig) == nil || done
	}
	if s.lasts && done {
		time.Sleep(f.For) // the fault
		for _, one := range all {
			if one.sig == stop || one.sig == syscall.SIGTSTP {
				_ = one.to.Signal(syscall.SIGCONT)
			}
		}
	}
	return done
}

// killHost ends all golocks and guards of a host, as a loss of its power would.
func (r *round) killHost(host int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var victims []*os.Process
	var hit []fault
	for _, u := range r.runs {
		if u.Host != host || u.process == nil || u.ended != 0 {
			continue
		}
		u.struck = true
		one := fault{kind: killWaiter, token: u.Token, host: -1}
		if guard := guardOf(u.process); guard != nil {
			one.kind, victims = killBoth, append(victims, guard)
		}
		victims, hit = append(victims, u.process), append(hit, one)
	}
	from := monotonic()
	for _, v := range victims {
		_ = v.Signal(kill)
	}
	for _, one := range hit {
		one.from, one.to = from, monotonic()
		r.faults = append(r.faults, one)
	}
}

// guardOf gives the guard of a golock; nil: it has none.
func guardOf(golock *os.Process) *os.Process {
	pid := testkit.GuardOf(golock.Pid)
	guard, err := os.FindProcess(max(pid, 1))
	if pid == 0 || err != nil || golock.Signal(syscall.Signal(0)) != nil { // it may be another golock's by now
		return nil
	}
	return guard
}

// target finds whom a fault hits, and its command; nil: nobody is there for it.
func (r *round) target(f planned) (*run, *os.Process) {
	wait := 300 * time.Millisecond
	if f.First {
		wait = r.TTL
	}
	over := time.After(wait)
	for {
		if f.Kind == killEnding {
			select {
			case token := <-r.rec.ending:
				r.mu.Lock() // its start may not be over
				defer r.mu.Unlock()
				return r.runs[token], nil
			case <-over:
				return nil, nil
			}
		}
		commands := r.rec.commands()
		if list := r.targets(f, commands); len(list) > 0 {
			u := list[f.Pick%len(list)]
			return u, commands[u.Token]
		}
		select {
		case <-over:
			return nil, nil
		case <-time.After(time.Millisecond):
		}
	}
}

func (r *round) targets(f planned, commands map[int]*os.Process) (list []*run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.runs {
		runs, fits := commands[u.Token] != nil, false
		switch f.Kind {
		case killWaiter, stopWaiter, suspend:
			fits = u.queued > 0 && u.ended == 0 && !runs
		case term, interrupt: // whoever there is
			fits = u.process != nil && u.ended == 0
		case killCommand, stopCommand, killHolder:
			fits = runs
		default:
			fits = runs && !u.Exec
		}
		if fits && f.First == (r.Outlasts && u.Token == 0) {
			list = append(list, u)
		}
	}
	return list
}
