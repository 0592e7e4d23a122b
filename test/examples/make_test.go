//go:build integration

package examples_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golock/test/testkit"
)

// compiler stands before the real one, writes down when it is at work, and holds the first one
// back until $TOGETHER have begun: so many are seen at once, or the build never ends. Plugin a waits
// for plugin b as well, which only a make that was lent the jobserver starts beside it.
const compiler = `#!/bin/sh
echo "begin $*" >>"$CC_LOG"
until [ "$(grep -c begin "$CC_LOG")" -ge "$TOGETHER" ]; do sleep 0.1; done
case "$*" in
*plugin_a*) until grep -q 'begin .*plugin_b' "$CC_LOG"; do sleep 0.1; done ;;
esac
'%s' "$@"
code=$?
echo "end $*" >>"$CC_LOG"
exit $code
`

// parts is how many sources the program has, beside main.c and two plugins.
const parts = 8

// project is the make example with sources, a compiler in front of the real one, and its log.
func project(t *testing.T, store string, together int, log string) *testkit.Sandbox {
	t.Helper()
	s := sandbox(t, "make", store)
	s.Script("bin/cc", fmt.Sprintf(compiler, testkit.Need(t, "cc")))
	testkit.Must(t, os.Mkdir(s.Path("src"), 0o755))
	var calls, protos strings.Builder
	for i := range parts {
		s.Write(fmt.Sprintf("src/part%02d.c", i), fmt.Sprintf("int part%02d(void) { return %[1]d; }\n", i))
		fmt.Fprintf(&protos, "int part%02d(void);\n", i)
		fmt.Fprintf(&calls, " + part%02d()", i)
	}
	s.Write("src/main.c", "#include <stdio.h>\n"+protos.String()+
		"int main(void) { printf(\"%d\\n\", 0"+calls.String()+"); return 0; }\n")
	s.Write("plugins/plugin_a.c", "int a;\n")
	s.Write("plugins/plugin_b.c", "int b;\n")
	if log == "" {
		log = s.Path("log")
	}
	s.Env = append(s.Env, "CC_LOG="+log, "TOGETHER="+strconv.Itoa(together))
	return s
}

// compiled demands so many compilers, and that two were at work at once.
func compiled(t *testing.T, log string, compilers int) {
	t.Helper()
	if n, at := strings.Count(log, "begin "), most(log); n != compilers || at != 2 {
		t.Errorf("%d compilers, %d at once, want %d and 2:\n%s", n, at, compilers, log)
	}
}

// Every jobserver that this make can offer reaches the compilers' makes through golock, and never
// more than two compilers are at work, where without golock there are three and more.
func TestMakeLimitsCompilers(t *testing.T) {
	t.Parallel()
	styles := []string{"--"}
	version := testkit.Output(t, "", testkit.Need(t, "make"), "--version")
	m := regexp.MustCompile(`^GNU Make (\d+)\.(\d+)`).FindStringSubmatch(version)
	if m == nil {
		t.Fatal("not GNU make")
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major > 4 || major == 4 && minor >= 4 { // older ones know the pipe only
		styles = []string{"--jobserver-style=pipe", "--jobserver-style=fifo"}
	}
	for _, style := range styles {
		s := project(t, "", 2, "")
		succeeds(s.Exec("make", "-j8", style).Begin())
		compiled(t, s.Read("log"), parts+1+1+2)
		if out := succeeds(s.Exec("./app").Begin()); out != "28\n" {
			t.Errorf("the program says %q", out)
		}
	}
	s := project(t, "", 3, "") // the measurement would show it
	succeeds(s.Exec("make", "-j8", "CC=cc").Begin())
	if n := most(s.Read("log")); n < 3 {
		t.Errorf("no more than %d compilers at once without golock: this test cannot see the limit", n)
	}
}

// Two CI jobs on one machine, each with -j8, share the two slots; the second tests after the first.
func TestMakeCISteps(t *testing.T) {
	t.Parallel()
	a := project(t, "", 2, "")
	b := project(t, a.Store, 2, a.Path("log"))
	for _, p := range []*testkit.Process{a.Exec("./ci-step").Begin(), b.Exec("./ci-step").Begin()} {
		if out := succeeds(p); !strings.HasSuffix(out, "\n28\n") {
			t.Errorf("the step did not end with the program's own output:\n%s", out)
		}
	}
	compiled(t, a.Read("log"), 2*(parts+1+1+2))
}
