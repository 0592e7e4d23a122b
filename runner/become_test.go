package runner

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"golock/locks/local"
	"golock/test/testkit"
)

// A golock that was told to stop does not become its command any more. Another
// process plays it, as the signals have their default action afterwards.
func TestToldBeforeItBecomesTheCommand(t *testing.T) {
	const dir = "LOCKTEST_RUNNER_DIR"
	if os.Getenv(dir) == "" {
		self := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		self.Env = append(os.Environ(), dir+"="+t.TempDir())
		out, err := self.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "told by 15") {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	r := testRun(t, local.New(os.Getenv(dir)), "echo", "the command")
	r.Exec = true
	runtime.LockOSThread() // a signal to this thread has come when the call returns
	testkit.Must(t, unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGTERM))
	if o := r.Do(); o.Kind != Interrupted {
		t.Fatalf("%+v", o)
	} else {
		fmt.Println("told by", int(o.Signal))
	}
}
