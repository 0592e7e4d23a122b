package leasefile_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golock/locks/leasefile"
)

// The strength test: a thousand children, at most five of them at a time, read a
// counter that nothing else protects, add one and write it back, each in a run
// of the real program.
func TestThousandIncrements(t *testing.T) {
	const children, together = 1000, 5
	golock := t.TempDir() + "/golock"
	build := exec.Command("go", "build", "-o", golock, "golock")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, scheme := range leasefile.Schemes() {
		t.Run(scheme, func(t *testing.T) {
			dir := memory(t)
			counter := t.TempDir() + "/counter"
			if err := os.WriteFile(counter, []byte("0\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			tokens := make(chan struct{}, children)
			for range children {
				tokens <- struct{}{}
			}
			close(tokens)
			var all sync.WaitGroup
			for range together {
				all.Go(func() {
					for range tokens {
						cmd := exec.Command(golock, "run", "--store", scheme+"://"+dir, "--name", "counter", "--",
							"sh", "-c", fmt.Sprintf("read n <%[1]s; echo $((n + 1)) >%[1]s", counter))
						if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
							t.Errorf("golock run: %v\n%s", err, out)
							return
						}
					}
				})
			}
			all.Wait()
			text, err := os.ReadFile(counter)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := strconv.Atoi(strings.TrimSpace(string(text))); n != children {
				t.Errorf("the counter reads %d (%v), want %d", n, err, children)
			}
		})
	}
}
