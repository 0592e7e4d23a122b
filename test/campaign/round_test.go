//go:build integration

package campaign_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// This file pins nothing. A round is a plan that is carried out: golocks of
// several drivers on several names of one store, faults, then quiet, until all
// have ended; last it is looked whether the locks are free.

type round struct {
	*plan
	engine *engine
	site   site
	dir    string // of the recorder
	rec    *recorder
	hosts  []*driver
	begun  moment

	mu     sync.Mutex
	runs   []*run // by token
	faults []fault
}

// patience is how long after the last fault, request or end of a golock the next one must
// have had its turn and ended, on a busy machine. It is much more than that takes.
const patience = 90 * time.Second

// play carries out a plan and gives a history for each name.
func (e *engine) play(s site, p *plan) (list []*history, err error) {
	name := fmt.Sprintf("r%x", p.Seed)
	dir, err := os.MkdirTemp("", "golock-campaign-") // a socket's path must be short
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &round{plan: p, engine: e, site: s, dir: dir}
	stalls.once.Do(watchStalls)
	if r.rec, err = newRecorder(filepath.Join(dir, "recorder")); err != nil {
		return nil, err
	}
	defer r.rec.close()
	if err := s.begin(name, p); err != nil {
		return nil, err
	}
	defer s.end()
	for i := range p.Requests {
		r.runs = append(r.runs, &run{request: p.Requests[i]})
	}
	for i := range p.Drivers {
		d, err := startDriver(i, p.Ahead[i], r.hear)
		if err != nil {
			return nil, err
		}
		defer d.close()
		r.hosts = append(r.hosts, d)
	}
	healed, stuck := r.run()
	over := monotonic()
	free := make([]string, len(p.Names))
	var all sync.WaitGroup
	for i := range p.Names {
		all.Go(func() { free[i] = r.free(i) })
	}
	all.Wait()
	for i := range p.Names {
		h := r.history(i)
		h.healed, h.over, h.free = healed, over, free[i]
		for _, u := range h.runs {
			if slices.Contains(stuck, u.Token) {
				h.stuck = append(h.stuck, u.Token)
			}
		}
		list = append(list, h)
	}
	if len(r.rec.trouble) > 0 {
		return nil, fmt.Errorf("the recorder does not understand %q", r.rec.trouble)
	}
	return list, nil
}

// history is what has happened on a name until now.
func (r *round) history(name int) *history {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	h := &history{terms: r.engine.terms(r.plan), begun: r.begun}
	if k, ok := r.site.(skewed); ok {
		h.Skewed = k.skewed()
	}
	for _, u := range r.runs {
		if u.Name != name || u.started == 0 {
			continue
		}
		c := *u
		for _, l := range r.rec.lives {
			if l.token == u.Token {
				one := *l
				c.lives = append(c.lives, &one)
			}
		}
		slices.SortStableFunc(c.lives, func(a, b *life) int { return a.part - b.part })
		h.runs = append(h.runs, &c)
	}
	for _, f := range r.faults {
		if f.token < 0 || r.runs[f.token].Name == name {
			h.faults = append(h.faults, f)
		}
	}
	h.faults = append(h.faults, stallsSince(r.begun)...)
	return h
}

// run makes what is planned, and waits for the end of all that lives.
func (r *round) run() (healed moment, stuck []int) {
	r.begun = monotonic()
	var all sync.WaitGroup
	all.Go(func() {
		for i := range r.Requests {
			q := &r.Requests[i]
			r.until(q.At)
			r.hosts[q.Driver].start(q.Token, r.argv(q), r.lives(q.Name), q.KilledWhen)
		}
	})
	for _, f := range r.Faults {
		all.Go(func() {
			r.until(f.At)
			r.make(f)
		})
	}
	over := make(chan bool)
	go func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(100 * time.Millisecond):
				r.letGo(false)
			}
		}
	}()
	all.Wait()
	healed = monotonic()
	var end time.Time
	for left := -1; ; time.Sleep(20 * time.Millisecond) {
		stuck = r.going()
		if len(stuck) != left {
			left, end = len(stuck), time.Now().Add(patience)
		}
		if left == 0 || time.Now().After(end) {
			break
		}
		// A golock that was told to go on while it was about to stop is one that
		// has stopped (signals.Relay.Suspend): told again, it goes on.
		r.mu.Lock()
		var suspended []*run
		for _, f := range r.faults {
			if f.kind == suspend && r.runs[f.token].ended == 0 {
				suspended = append(suspended, r.runs[f.token])
			}
		}
		r.mu.Unlock()
		for _, u := range suspended {
			r.hosts[u.Driver].signal(u.Token, "golock", syscall.SIGCONT)
		}
	}
	for _, token := range stuck {
		r.hosts[r.runs[token].Driver].signal(token, "golock", syscall.SIGKILL)
	}
	for end := time.Now().Add(2 * soon); r.letGo(true) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	close(over)
	return healed, stuck
}

// letGo ends processes that may outlive their golock, all of them or those that keep a
// slot because it was killed, and reports whether any are left.
func (r *round) letGo(all bool) (left bool) {
	var list []*history
	for i := range r.Names {
		list = append(list, r.history(i))
	}
	for _, l := range r.rec.running() {
		h := list[r.runs[l.token].Name]
		switch u := h.run(l.token); {
		case u == nil: // not heard of yet
		case all && !h.mustEnd(u, l), !h.Leased && u.killed && l.part > 0:
			r.rec.end(l)
		}
		left = true
	}
	return left
}

func (r *round) until(at time.Duration) {
	time.Sleep(at - time.Duration(monotonic()-r.begun)) // the plan says when
}

// going are the golocks that have not ended.
func (r *round) going() (list []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.runs {
		if u.ended == 0 {
			list = append(list, u.Token)
		}
	}
	return list
}

// hear takes in what drivers tell.
func (r *round) hear(n news) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.runs[n.Token]
	switch n.What {
	case "started":
		u.started = n.At
		if u.KilledWhen > 0 {
			r.faults = append(r.faults, fault{kind: killNewcomer, token: u.Token, driver: -1, from: n.At + int64(u.KilledWhen), to: n.At + int64(u.KilledWhen)})
		}
	case "said":
		if n.Text == "waiting" {
			if u.queued == 0 {
				u.queued = n.At
			}
		} else if len(u.said) < 6 {
			u.said = append(u.said, n.Text)
		}
	case "ended":
		u.ended, u.code, u.killed, u.left = n.At, n.Code, n.Kill, n.Left
		if n.Code == notRun {
			u.started, u.said = n.At, append(u.said, n.Text)
		}
	}
}

// lives is where the commands of a name lock their bytes.
func (r *round) lives(name int) string { return filepath.Join(r.dir, fmt.Sprintf("lives-%d", name)) }

// argv is the golock of a request.
func (r *round) argv(q *request) []string {
	argv := []string{golock, "run", "--store", r.site.url(q.Name, q.Driver), "--name", r.site.name(q.Name), "-v", "--log-format", "json"}
	flag := func(yes bool, words ...string) {
		if yes {
			argv = append(argv, words...)
		}
	}
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 6, 64) }
	flag(q.Max == 0, "--shared")
	flag(q.Max > 1, "--max", strconv.Itoa(q.Max))
	flag(q.Weight > 1, "--weight", strconv.Itoa(q.Weight))
	flag(q.Priority != 0, "--priority="+strconv.Itoa(q.Priority))
	flag(q.NoWait, "-n")
	flag(!q.NoWait && q.Wait > 0, "-w", seconds(q.Wait))
	flag(q.MaxQueue >= 0, "--max-queue", strconv.Itoa(q.MaxQueue))
	flag(q.Replace != "", "--replace", q.Replace)
	flag(q.Hold > 0, "--hold", seconds(q.Hold))
	flag(q.Limit > 0, "--time-limit", seconds(q.Limit))
	flag(!q.Exec, "--kill-after", "0.2")
	flag(q.Exec, "-F")
	flag(q.Close, "-o")
	flag(q.Tree, "--tree")
	flag(r.engine.leased, "--ttl", seconds(r.TTL))
	micros := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	argv = append(argv, "--", member, r.rec.socket, r.lives(q.Name),
		strconv.Itoa(q.Token), micros(q.Lasts), strconv.Itoa(q.Code))
	flag(q.Stubborn, "T")
	for _, d := range q.Daemons {
		argv = append(argv, "D:"+micros(d))
	}
	for _, d := range q.Children {
		argv = append(argv, "C:"+micros(d))
	}
	return argv
}

// strike is what a fault sends to processes.
type strike struct {
	who   string // golock, guard or both; "": only to the command
	sig   syscall.Signal
	guard syscall.Signal // to the guard, if it is another one
	lasts bool           // then CONT
}

var strikes = map[kind]strike{
	killHolder: {who: "golock", sig: syscall.SIGKILL},
	killWaiter: {who: "golock", sig: syscall.SIGKILL},
	killEnding: {who: "golock", sig: syscall.SIGKILL},
	killPair:   {who: "golock", sig: syscall.SIGKILL},
	killGuard:  {who: "guard", sig: syscall.SIGKILL},
	killBoth:   {who: "both", sig: syscall.SIGKILL},
	term:       {who: "golock", sig: syscall.SIGTERM},
	interrupt:  {who: "golock", sig: syscall.SIGINT},
	suspend:    {who: "golock", sig: syscall.SIGTSTP, lasts: true},
	stopHolder: {who: "golock", sig: syscall.SIGSTOP, lasts: true},
	stopWaiter: {who: "golock", sig: syscall.SIGSTOP, lasts: true},
	stopGuard:  {who: "guard", sig: syscall.SIGSTOP, lasts: true},
	stopBoth:   {who: "both", sig: syscall.SIGSTOP, lasts: true},
	stopTree:   {who: "both", sig: syscall.SIGSTOP, lasts: true},
	// golock is continued, and finds its guard killed.
	stopThenKill: {who: "both", sig: syscall.SIGSTOP, guard: syscall.SIGKILL, lasts: true},
	// With its parent the guard's group loses who would continue it: then the kernel
	// does, if it has stopped by then; else the driver.
	killStopped: {who: "both", sig: syscall.SIGKILL, guard: syscall.SIGSTOP, lasts: true},
	killCommand: {},
	stopCommand: {lasts: true},
}

// make makes a planned fault, and notes it when it is over.
func (r *round) make(f planned) {
	from := monotonic()
	note := func(token, driver int) {
		made := fault{kind: f.Kind, token: token, driver: driver, from: from, to: monotonic()}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.faults = append(r.faults, made)
	}
	s, ok := strikes[f.Kind]
	if !ok {
		if driver, ok := r.site.fault(f); ok {
			note(-1, driver)
		}
		return
	}
	token, command := r.target(f)
	if token < 0 {
		return
	}
	from = monotonic()
	d, done := r.hosts[r.runs[token].Driver], false
	switch {
	case f.Kind == killEnding:
		time.Sleep(f.After) // the fault
	case f.Kind == killCommand, f.Kind == killPair && f.Pick%2 == 0:
		done = r.rec.signal(command, syscall.SIGKILL)
	case f.Kind == stopCommand, f.Kind == stopTree:
		done = r.rec.signal(command, syscall.SIGSTOP)
		defer r.rec.signal(command, syscall.SIGCONT)
	}
	if s.who != "" {
		o := order{Op: "signal", Token: token, Who: s.who, Sig: int(s.sig), Sig2: int(s.guard)}
		if f.Kind == killStopped {
			o.Age = f.For
		}
		done = d.order(o) || done
	}
	if f.Kind == killPair && f.Pick%2 > 0 {
		r.rec.signal(command, syscall.SIGKILL)
	}
	if !done {
		return
	}
	if s.lasts {
		time.Sleep(f.For) // the fault
		if s.who != "" && f.Kind != killStopped {
			d.signal(token, s.who, syscall.SIGCONT)
		}
	}
	note(token, -1)
}

// target finds whom a fault hits; -1: nobody is there for it.
func (r *round) target(f planned) (token int, command *life) {
	for end := time.Now().Add(300 * time.Millisecond); f.First || time.Now().Before(end); time.Sleep(time.Millisecond) {
		switch f.Kind {
		case killEnding:
			select {
			case token := <-r.rec.ending:
				return token, nil
			case <-time.After(time.Until(end)):
			}
		case killWaiter, stopWaiter, suspend:
			if list := r.waiting(); len(list) > 0 {
				return list[f.Pick%len(list)], nil
			}
		case term, interrupt: // whoever there is
			list := slices.DeleteFunc(r.going(), func(token int) bool {
				return r.Outlasts && token == 0 || !r.hasStarted(token)
			})
			if len(list) > 0 {
				return list[f.Pick%len(list)], nil
			}
		default:
			list := r.rec.commands(func(token int) bool {
				if f.First || r.Outlasts && token == 0 {
					return f.First && token == 0
				}
				return !r.runs[token].Exec || f.Kind == killCommand || f.Kind == stopCommand || f.Kind == killHolder
			})
			if len(list) > 0 {
				l := list[f.Pick%len(list)]
				return l.token, l
			}
			if f.First && !slices.Contains(r.going(), 0) {
				return -1, nil
			}
		}
	}
	return -1, nil
}

func (r *round) hasStarted(token int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs[token].started > 0
}

// waiting are the golocks that wait, as far as that is known.
func (r *round) waiting() (list []int) {
	running := r.rec.commands(func(int) bool { return true })
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.runs {
		if u.queued > 0 && u.ended == 0 && !slices.ContainsFunc(running, func(l *life) bool { return l.token == u.Token }) {
			list = append(list, u.Token)
		}
	}
	return list
}

// free says why a lock is not free at last; "": it is. Leases and holds may have
// to end first, and a server that has just come back has its quarantine.
func (r *round) free(name int) string {
	limit := 15 * time.Second
	if r.engine.leased {
		limit += r.TTL + quarantine
	}
	said := ""
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		if said = r.look(name); said == "" {
			return ""
		}
		if time.Now().After(end) {
			return fmt.Sprintf("after %v: %s", limit, said)
		}
	}
}

func (r *round) look(name int) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	command := func(argv ...string) (string, string, error) {
		c := exec.CommandContext(ctx, golock, argv...)
		c.Env = environment()
		var out, says strings.Builder
		c.Stdout, c.Stderr = &out, &says
		err := c.Run()
		return out.String(), says.String(), err
	}
	// First one that takes the slot: a lease file whose golock is dead is known
	// as such by who has looked for a whole TTL, and a list looks but once.
	url, label := r.site.url(name, -1), r.site.name(name)
	if _, says, err := command("run", "-n", "--store", url, "--name", label, "--", "true"); err != nil {
		return fmt.Sprintf("run -n: %v: %s", err, says)
	}
	out, says, err := command("ls", "--json", "--store", url, label)
	var entries []any
	if err == nil {
		err = json.Unmarshal([]byte(out), &entries)
	}
	if err != nil {
		return fmt.Sprintf("ls: %v: %s%s", err, out, says)
	}
	if len(entries) > 0 {
		return "ls: " + strings.TrimSpace(out)
	}
	return ""
}
