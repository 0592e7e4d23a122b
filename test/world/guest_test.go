//go:build world

package world_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golock/test/testkit"
)

// guest is a virtual machine. The agent in it serves the test over a serial port.
type guest struct {
	t       *testing.T
	name    string
	dir     string
	monitor net.Conn
	port    net.Conn
	boots   chan string // the boot IDs that the agent has told when it started

	mu    sync.Mutex // guards the fields below
	calls map[string]chan string
	count int
	lives []*life
}

// life is the time in which a member of a guest lived, as its agent told the host.
type life struct {
	guest    *guest
	token    string
	from, to time.Time // to is zero while it lives
}

// accelerator returns the options of QEMU that run a guest's processors, with KVM if this machine has it.
func accelerator() []string {
	if isFast() {
		return []string{"-accel", "kvm", "-cpu", "host"}
	}
	return []string{"-accel", "tcg", "-cpu", "max"}
}

// isFast reports whether guests use KVM. LOCKTEST_KVM=no is for hosts on which no guest boots with it.
func isFast() bool {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err == nil {
		f.Close()
	}
	return err == nil && os.Getenv("LOCKTEST_KVM") != "no"
}

// processors returns how many of them a guest has. Two that are emulated wait for each other where the host is busy.
func processors() string {
	if isFast() {
		return "2"
	}
	return "1"
}

// boot starts a guest and returns when its agent answers. What the guest writes to its disk is gone when it ends.
// The guest with number n has the address 10.88.0.n on the network of the guests.
func boot(t *testing.T, name string, number int) *guest {
	t.Helper()
	image := os.Getenv("LOCKTEST_IMAGE")
	scripts, err := filepath.Abs("guest")
	testkit.Must(t, err)
	dir, err := os.MkdirTemp("", "world-")
	testkit.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	g := &guest{t: t, name: name, dir: dir, boots: make(chan string, 8), calls: map[string]chan string{}}
	listen := func(name string) net.Listener {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		testkit.Must(t, err)
		t.Cleanup(func() { l.Close() })
		return l
	}
	port, monitor := listen("port"), listen("monitor")
	argv := append([]string{"-n", "15", "qemu-system-x86_64"}, accelerator()...)
	argv = append(argv, "-machine", "q35", "-m", "640", "-smp", processors(), "-nodefaults", "-display", "none",
		"-kernel", filepath.Join(image, "vmlinuz"), "-initrd", filepath.Join(image, "initrd"),
		"-append", fmt.Sprintf("console=ttyS0 root=/dev/vda rw quiet systemd.show_status=no world=%d", number),
		"-drive", "if=virtio,format=raw,snapshot=on,file="+filepath.Join(image, "root.img"),
		"-netdev", "socket,id=guests,mcast=230.0.0.88:10888,localaddr=127.0.0.1",
		"-device", fmt.Sprintf("virtio-net-pci,netdev=guests,id=card,mac=52:54:00:88:00:%02x", number),
		"-virtfs", "local,mount_tag=world,security_model=none,readonly=on,path="+scripts,
		"-serial", "file:"+g.console(), "-serial", "unix:"+filepath.Join(dir, "port"),
		"-monitor", "unix:"+filepath.Join(dir, "monitor"))
	machine := exec.Command("nice", argv...)
	machine.Stderr = os.Stderr
	machine.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	testkit.Must(t, machine.Start())
	t.Cleanup(func() {
		_ = machine.Process.Kill()
		_ = machine.Wait()
	})
	g.port, err = port.Accept()
	testkit.Must(t, err)
	g.monitor, err = monitor.Accept()
	testkit.Must(t, err)
	g.prompted()
	go g.listen()
	began := time.Now()
	g.await()
	t.Logf("%s has booted in %.0f s", name, time.Since(began).Seconds())
	return g
}

// console returns the path of the file with what the guest's kernel and systemd print.
func (g *guest) console() string { return filepath.Join(g.dir, "console") }

// await returns when the agent has started, at the boot of the guest.
func (g *guest) await() {
	g.t.Helper()
	select {
	case <-g.boots:
	case <-time.After(timeOfBoot):
		text, _ := os.ReadFile(g.console())
		g.t.Fatalf("%s does not boot within %v; its console:\n%s", g.name, timeOfBoot, text[max(0, len(text)-2000):])
	}
}

// listen reads what the agent says until the guest ends.
func (g *guest) listen() {
	for in := bufio.NewReader(g.port); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		first, rest, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		g.mu.Lock()
		switch {
		case first == "hello":
			g.boots <- rest
		case first == "begin":
			g.lives = append(g.lives, &life{guest: g, token: rest, from: time.Now()})
		case first == "end":
			for _, one := range g.lives {
				if one.token == rest && one.to.IsZero() {
					one.to = time.Now()
				}
			}
		case g.calls[first] != nil:
			g.calls[first] <- rest
		}
		g.mu.Unlock()
	}
}

// call sends a request to the agent. The lines of the answer come on the channel.
func (g *guest) call(request string) <-chan string {
	g.mu.Lock()
	g.count++
	id := strconv.Itoa(g.count)
	answer := make(chan string, 10000)
	g.calls[id] = answer
	g.mu.Unlock()
	_, err := fmt.Fprintln(g.port, id, request)
	testkit.Must(g.t, err)
	return answer
}

// result is what a script printed, and its exit code.
type result struct {
	code int
	text string
}

// begin starts a script in the guest. Its result comes on the channel; code -1 if it takes longer than limit.
func (g *guest) begin(limit time.Duration, script ...string) <-chan result {
	answer, done := g.call("run "+strings.Join(script, " ")), make(chan result, 1)
	go func() {
		over := time.After(limit)
		var text bytes.Buffer
		for {
			select {
			case line := <-answer:
				kind, rest, _ := strings.Cut(line, " ")
				if kind == "exit" {
					code, _ := strconv.Atoi(rest)
					done <- result{code, text.String()}
					return
				}
				text.WriteString(rest + "\n")
				fmt.Fprintf(os.Stderr, "%s: %s: %s: %s\n", time.Now().Format(time.TimeOnly), g.name, script[0], rest)
			case <-over:
				done <- result{-1, text.String() + fmt.Sprintf("not done within %v\n", limit)}
				return
			}
		}
	}()
	return done
}

// run runs a script in the guest and returns what it prints. The test fails if the script does.
func (g *guest) run(t *testing.T, script ...string) string {
	t.Helper()
	r := <-g.begin(timeOfScript, script...)
	if r.code != 0 {
		t.Fatalf("%s: %s: exit code %d:\n%s", g.name, strings.Join(script, " "), r.code, r.text)
	}
	return r.text
}

// tell gives the monitor of QEMU a command.
func (g *guest) tell(command string) { g.ask(command) }

// ask gives the monitor of QEMU a command and returns what it answers.
func (g *guest) ask(command string) string {
	g.t.Helper()
	_, err := fmt.Fprintln(g.monitor, command)
	testkit.Must(g.t, err)
	return g.prompted()
}

// prompted reads what the monitor says up to its prompt.
func (g *guest) prompted() string {
	g.t.Helper()
	var said []byte
	for b := make([]byte, 1); !bytes.HasSuffix(said, []byte("(qemu) ")); said = append(said, b[0]) {
		_, err := g.monitor.Read(b)
		testkit.Must(g.t, err)
	}
	return string(said)
}
