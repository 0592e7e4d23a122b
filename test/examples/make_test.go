//go:build integration

package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golock/test/testkit"
)

// ccWrapper stands before the compiler, writes down when it is at work, and holds the first one back until $TOGETHER
// have begun: so many are seen at once, or the build never ends. Plugin a waits for plugin b as well, which only a make
// that was lent the jobserver starts beside it.
const ccWrapper = `#!/bin/sh
echo "begin $*" >>"$CC_LOG"
until [ "$(grep -c begin "$CC_LOG")" -ge "$TOGETHER" ]; do sleep 0.01; done
case "$*" in
*plugin_a*) until grep -q 'begin .*plugin_b' "$CC_LOG"; do sleep 0.01; done ;;
esac
'%s' "$@"
code=$?
echo "end $*" >>"$CC_LOG"
exit $code
`

// project is the make example with sources, and a compiler in front of the real one.
func project(t *testing.T) (dir, bin string) {
	t.Helper()
	testkit.Need(t, "make")
	testkit.Need(t, "cc")
	cc, err := exec.LookPath("cc")
	testkit.Must(t, err)
	dir, bin = copyExample(t, "make"), t.TempDir()
	write(t, filepath.Join(bin, "cc"), 0o755, fmt.Sprintf(ccWrapper, cc))
	var calls, protos strings.Builder
	for i := range 20 {
		write(t, filepath.Join(dir, "src", fmt.Sprintf("part%02d.c", i)), 0o644, fmt.Sprintf("int part%02d(void) { return %d; }\n", i, i))
		fmt.Fprintf(&protos, "int part%02d(void);\n", i)
		fmt.Fprintf(&calls, " + part%02d()", i)
	}
	write(t, filepath.Join(dir, "src", "main.c"), 0o644,
		fmt.Sprintf("#include <stdio.h>\n%sint main(void) { printf(\"%%d\\n\", 0%s); return 0; }\n", &protos, &calls))
	write(t, filepath.Join(dir, "plugins", "plugin_a.c"), 0o644, "int a;\n")
	write(t, filepath.Join(dir, "plugins", "plugin_b.c"), 0o644, "int b;\n")
	return dir, bin
}

func build(t *testing.T, store, dir, bin, log string, together int, argv ...string) *command {
	t.Helper()
	c := newCommand(t, store, dir, argv...)
	c.Env = append(c.Env, "PATH="+bin+":"+os.Getenv("PATH"), "CC_LOG="+log, "TOGETHER="+strconv.Itoa(together))
	return c.start(t)
}

func checkBuild(t *testing.T, c *command) {
	t.Helper()
	if code := c.code(t); code != 0 {
		t.Fatalf("%q: exit code %d\nstdout: %s\nstderr: %s", c.Args, code, &c.out, &c.err)
	}
	if all := c.out.String() + c.err.String(); strings.Contains(all, "jobserver") {
		t.Errorf("make complains of its jobserver:\n%s", all)
	}
	if strings.Contains(c.said(), "golock:") {
		t.Errorf("golock spoke in a build that went well:\n%s", &c.err)
	}
}

// Every jobserver that this make can offer reaches the compilers' makes through golock, and never more than two
// compilers are at work, where without golock there are three and more.
func TestMakeLimitsCompilers(t *testing.T) {
	t.Parallel()
	styles := [][]string{{}}
	version, err := exec.Command("make", "--version").Output()
	if err != nil {
		t.Fatalf("%v; run: make deps", err)
	}
	m := regexp.MustCompile(`^GNU Make (\d+)\.(\d+)`).FindSubmatch(version)
	if m == nil {
		t.Fatalf("not GNU make: %s", version)
	}
	major, _ := strconv.Atoi(string(m[1]))
	minor, _ := strconv.Atoi(string(m[2]))
	if major > 4 || major == 4 && minor >= 4 { // older ones know the pipe only
		styles = [][]string{{"--jobserver-style=pipe"}, {"--jobserver-style=fifo"}}
	}
	for _, style := range styles {
		t.Run(strings.Join(append([]string{"golock"}, style...), ""), func(t *testing.T) {
			dir, bin := project(t)
			log := filepath.Join(t.TempDir(), "log")
			c := build(t, t.TempDir(), dir, bin, log, 2, append([]string{"make", "-j8"}, style...)...)
			checkBuild(t, c)
			s := read(t, log)
			if n := most(s); n != 2 {
				t.Errorf("%d compilers at once, want 2:\n%s", n, s)
			}
			if n := strings.Count(s, "begin "); n != 21+1+2 {
				t.Errorf("%d compilers were started, want 24", n)
			}
			if out := mustRun(t, t.TempDir(), dir, "./app"); out != "190\n" {
				t.Errorf("the program says %q", out)
			}
		})
	}
	t.Run("without golock", func(t *testing.T) { // the measurement would show it
		dir, bin := project(t)
		log := filepath.Join(t.TempDir(), "log")
		checkBuild(t, build(t, t.TempDir(), dir, bin, log, 3, "make", "-j8", "CC=cc"))
		if n := most(read(t, log)); n < 3 {
			t.Errorf("no more than %d compilers at once without golock: this test cannot see the limit", n)
		}
	})
}

// Two CI jobs on one machine, each with -j8, share the two slots; the second tests after the first.
func TestMakeCISteps(t *testing.T) {
	t.Parallel()
	store, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	var steps []*command
	for range 2 {
		dir, bin := project(t)
		steps = append(steps, build(t, store, dir, bin, log, 2, "./ci-step"))
	}
	for _, c := range steps {
		checkBuild(t, c)
		if !strings.HasSuffix(c.out.String(), "\n190\n") {
			t.Errorf("the step did not end with the program's own output:\n%s", &c.out)
		}
	}
	s := read(t, log)
	if n := most(s); n != 2 {
		t.Errorf("%d compilers at once in two builds, want 2:\n%s", n, s)
	}
	if n := strings.Count(s, "begin "); n != 2*24 {
		t.Errorf("%d compilers were started, want 48", n)
	}
}

// The jobserver as its clients see it, with the test as the make above: the variable and the tokens, by descriptors and
// by the path of a fifo, come through golock, and a token that is given back is there for the next.
func TestJobserverTokens(t *testing.T) {
	t.Parallel()
	const client = `
		case $MAKEFLAGS in
		*fifo:*) exec 8<>"${MAKEFLAGS##*fifo:}" ;;
		*)       exec 8<>/dev/fd/5 ;;
		esac
		token=$(dd bs=1 count=1 <&8 2>/dev/null) && printf %s "$token" >&8 && echo "had $token, MAKEFLAGS=$MAKEFLAGS"`
	fifo := filepath.Join(t.TempDir(), "tokens")
	if out, err := exec.Command("mkfifo", fifo).CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v %s", err, out)
	}
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	testkit.Must(t, err)
	defer f.Close()
	r, w, err := os.Pipe()
	testkit.Must(t, err)
	defer r.Close()
	defer w.Close()

	for _, server := range []struct {
		flags  string
		tokens *os.File
		extra  []*os.File // descriptors 3, 4, ...
	}{
		{"-j3 --jobserver-auth=fifo:" + fifo, f, nil},
		{"-j3 --jobserver-auth=5,6", w, []*os.File{r, w, r, w}},
	} {
		if _, err := server.tokens.WriteString("+"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			c := newCommand(t, t.TempDir(), "", "golock", "run", "--name", "client", "--", "sh", "-c", client)
			c.Env = append(c.Env, "MAKEFLAGS="+server.flags)
			c.ExtraFiles = server.extra
			c.start(t)
			if code, want := c.code(t), "had +, MAKEFLAGS="+server.flags+"\n"; code != 0 || c.out.String() != want {
				t.Errorf("code %d, stdout %q, stderr %q; want 0, %q", code, &c.out, &c.err, want)
			}
		}
	}
}
