//go:build integration

package campaign_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file pins nothing. A driver is a process that starts golocks, as one
// host of many: it has its own way to the server and, on stores across
// machines, its own clock since boot. It is told what to do by lines of JSON,
// and tells what becomes of it in the same way.

const (
	driverArg = "@driver"
	notRun    = -1000 // the code of a golock that could not be started
)

// order is what a driver is told. Of a process that is to be signalled it is
// told the golock; who says which of its processes are meant.
type order struct {
	ID    int // of the answer; 0: none is wanted
	Op    string
	Token int
	Argv  []string      `json:",omitempty"`
	Lives string        `json:",omitempty"` // the commands' file
	Age   time.Duration `json:",omitempty"` // at which the golock is killed; after which the guard is continued
	Who   string        `json:",omitempty"` // golock, guard or both
	Sig   int           `json:",omitempty"`
	Sig2  int           `json:",omitempty"` // of the guard, if it is another one
}

// news is what a driver tells.
type news struct {
	ID    int // of the order that this answers
	Token int
	What  string // started, said, ended, answer
	At    moment
	Text  string `json:",omitempty"`
	Code  int
	Kill  bool
	Left  []int `json:",omitempty"` // processes of the run that lived when golock had ended
	OK    bool
}

// driven is the process of a driver.
type driven struct {
	mu      sync.Mutex
	out     *json.Encoder
	golocks map[int]*os.Process
	wait    sync.WaitGroup
}

func driverMain() int {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	d := &driven{out: json.NewEncoder(os.Stdout), golocks: map[int]*os.Process{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		switch o.Op {
		case "start":
			d.start(o)
		case "signal":
			d.tell(news{ID: o.ID, What: "answer", At: monotonic(), OK: d.signal(o)})
		}
	}
	// Nobody is there any more who would continue or end them.
	d.mu.Lock()
	for _, p := range d.golocks {
		_ = p.Signal(syscall.SIGCONT)
		_ = p.Kill()
	}
	d.mu.Unlock()
	d.wait.Wait()
	return 0
}

func (d *driven) tell(n news) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.out.Encode(n)
}

func (d *driven) start(o order) {
	r, w, err := os.Pipe()
	if err != nil {
		d.tell(news{Token: o.Token, What: "ended", At: monotonic(), Text: err.Error(), Code: notRun})
		return
	}
	null, err := os.Open(os.DevNull)
	if err == nil {
		defer null.Close()
	}
	at := monotonic()
	var p *os.Process
	if err == nil {
		p, err = os.StartProcess(o.Argv[0], o.Argv, &os.ProcAttr{
			Dir: "/", Env: environment(), Files: []*os.File{null, w, w}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
	}
	w.Close()
	if err != nil {
		r.Close()
		d.tell(news{Token: o.Token, What: "ended", At: monotonic(), Text: err.Error(), Code: notRun})
		return
	}
	d.mu.Lock()
	d.golocks[o.Token] = p
	d.mu.Unlock()
	d.tell(news{Token: o.Token, What: "started", At: at})
	if o.Age > 0 {
		time.AfterFunc(o.Age-time.Duration(monotonic()-at), func() { _ = p.Kill() })
	}
	go d.listen(o.Token, r)
	d.wait.Go(func() {
		state, err := p.Wait()
		n := news{Token: o.Token, What: "ended", Left: living(o.Lives, o.Token), Code: notRun}
		n.At = monotonic()
		if err == nil {
			n.Code = state.ExitCode()
			ws, _ := state.Sys().(syscall.WaitStatus)
			if ws.Signaled() {
				n.Code, n.Kill = -int(ws.Signal()), ws.Signal() == syscall.SIGKILL
			}
		}
		d.tell(n)
	})
}

// listen passes on what a golock says.
func (d *driven) listen(token int, r io.ReadCloser) {
	defer r.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		at := monotonic()
		text := lines.Text()
		var event struct{ Level, Msg, Error string }
		if json.Unmarshal(lines.Bytes(), &event) == nil {
			switch {
			case event.Msg == "waiting":
				text = event.Msg
			case event.Level == "info":
				continue
			default:
				text = strings.TrimSpace(event.Msg + " " + event.Error)
			}
		}
		d.tell(news{Token: token, What: "said", At: at, Text: text})
	}
}

// signal signals a golock, its guard, or both as near together as can be.
func (d *driven) signal(o order) bool {
	d.mu.Lock()
	p := d.golocks[o.Token]
	d.mu.Unlock()
	if p == nil {
		return false
	}
	sig := syscall.Signal(o.Sig)
	if o.Who == "golock" {
		return p.Signal(sig) == nil
	}
	guard := guardOf(p.Pid)
	if guard >= 0 && p.Signal(syscall.Signal(0)) != nil { // the number may be another golock's by now
		unix.Close(guard)
		return false
	}
	if guard < 0 {
		return o.Who == "both" && sig == syscall.SIGCONT && p.Signal(sig) == nil
	}
	if o.Who == "guard" {
		defer unix.Close(guard)
		return unix.PidfdSendSignal(guard, sig, nil, 0) == nil
	}
	if o.Sig2 == 0 {
		o.Sig2 = o.Sig
	}
	// A guard that has gone since is as good as killed; what golock got must be noted.
	_ = unix.PidfdSendSignal(guard, syscall.Signal(o.Sig2), nil, 0)
	ok := p.Signal(sig) == nil
	if o.Age == 0 {
		unix.Close(guard)
		return ok
	}
	d.wait.Go(func() { // it may not be found again
		defer unix.Close(guard)
		time.Sleep(o.Age) // the fault
		_ = unix.PidfdSendSignal(guard, syscall.SIGCONT, nil, 0)
	})
	return ok
}

// guardOf gives a pidfd of the guard of a golock, -1 if it has none.
func guardOf(golock int) int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", golock))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(text)) {
			pid, _ := strconv.Atoi(word)
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue
			}
			name, _ := os.ReadFile("/proc/" + word + "/comm")
			if strings.HasPrefix(string(name), "golock-") {
				return fd
			}
			unix.Close(fd)
		}
	}
	return -1
}

// driver is the campaign's end of one.
type driver struct {
	number int
	cmd    *exec.Cmd
	in     io.WriteCloser
	done   chan struct{}
	hear   func(news)

	mu      sync.Mutex
	out     *json.Encoder
	last    int
	answers map[int]chan bool
}

// startDriver starts one, with a clock since boot that is ahead by some
// seconds.
func startDriver(number int, ahead int64, hear func(news)) (*driver, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	argv := []string{self, driverArg}
	if ahead != 0 {
		argv = append([]string{"unshare", "--time", "--fork", "--kill-child", "--boottime", strconv.FormatInt(ahead, 10), "--"}, argv...)
	}
	d := &driver{number: number, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{}), hear: hear, answers: map[int]chan bool{}}
	d.cmd.Stderr = os.Stderr
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	d.out = json.NewEncoder(d.in)
	go func() {
		defer close(d.done)
		lines := json.NewDecoder(out)
		for {
			var n news
			if lines.Decode(&n) != nil {
				return
			}
			if n.What != "answer" {
				d.hear(n)
				continue
			}
			d.mu.Lock()
			c := d.answers[n.ID]
			delete(d.answers, n.ID)
			d.mu.Unlock()
			c <- n.OK
		}
	}()
	return d, nil
}

func (d *driver) start(token int, argv []string, lives string, age time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.out.Encode(order{Op: "start", Token: token, Argv: argv, Lives: lives, Age: age})
}

// signal signals a golock, its guard or both, and reports whether that was
// possible.
func (d *driver) signal(token int, who string, sig syscall.Signal) bool {
	return d.order(order{Op: "signal", Token: token, Who: who, Sig: int(sig)})
}

func (d *driver) order(o order) bool {
	d.mu.Lock()
	d.last++
	c := make(chan bool, 1)
	d.answers[d.last] = c
	o.ID = d.last
	_ = d.out.Encode(o)
	d.mu.Unlock()
	select {
	case ok := <-c:
		return ok
	case <-d.done:
		return false
	}
}

// close ends the driver and all that it has started.
func (d *driver) close() {
	d.in.Close()
	<-d.done
	_ = d.cmd.Wait()
}
