//go:build integration

// Package packages_test makes what is given to users, binaries, the Debian package and what the image holds, and uses it
// as they would. Nothing of it is installed on the machine of the test.
package packages_test

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const version = "v1.2.3-4-gabcdef0"

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// do runs a command that must succeed, in dir, and returns what it printed.
func do(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%q: %v\n%s%s", argv, err, &stdout, &stderr)
	}
	return stdout.String()
}

// dist makes, once, the binaries that this machine can run. Those of arm64 and arm
// would cost as much again on a cold cache, and a release makes them.
var made string

func dist(t *testing.T) string {
	t.Helper()
	if made == "" {
		dir, err := os.MkdirTemp("", "golock-dist")
		if err != nil {
			t.Fatal(err)
		}
		do(t, root(t), "make", "dist", "DIST="+dir, "VERSION="+version, "ARCHS=amd64 386")
		made = dir
	}
	return made
}

func TestMain(m *testing.M) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "GOLOCK_") || name == "MAKEFLAGS" {
			os.Unsetenv(name)
		}
	}
	code := m.Run()
	if made != "" {
		os.RemoveAll(made)
	}
	os.Exit(code)
}

// A binary for each machine: static, with its version, and with a checksum that is right.
func TestDist(t *testing.T) {
	dir := dist(t)
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "386": elf.EM_386}
	do(t, dir, "sha256sum", "--check", "--strict", "SHA256SUMS")
	if sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS")); err != nil || bytes.Count(sums, []byte("\n")) != len(machines) {
		t.Errorf("SHA256SUMS: %v\n%s", err, sums)
	}
	for arch, machine := range machines {
		file := filepath.Join(dir, "golock-"+version+"-linux-"+arch)
		f, err := elf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Machine != machine {
			t.Errorf("%s: for %v", arch, f.Machine)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("%s: is not static", arch)
			}
		}
		golock := file
		if got := do(t, dir, golock, "version"); !strings.HasPrefix(got, "golock "+version+" (go") || !strings.Contains(got, "linux/"+arch) {
			t.Errorf("%s: version says %q", arch, got)
		}
		store := "local://" + t.TempDir()
		if got := do(t, dir, golock, "run", "--store", store, "--name", "n", "--tree", "--time-limit", "1m", "--", golock, "ls", "--store", store, "--json"); !strings.Contains(got, `"state": "holding"`) {
			t.Errorf("%s: ls inside a run says %s", arch, got)
		}
	}
}

// source is a copy of what packaging/deb needs, with the binary of this machine.
func source(t *testing.T) string {
	t.Helper()
	dir, from := t.TempDir(), root(t)
	for _, name := range []string{"packaging", "docs"} {
		do(t, from, "cp", "-R", name, dir)
	}
	for _, name := range []string{"README.md", "CHANGELOG.md", "LICENSE"} {
		do(t, from, "cp", name, dir)
	}
	do(t, from, "install", "-D", filepath.Join(dist(t), "golock-"+version+"-linux-amd64"), filepath.Join(dir, "bin", "golock"))
	return dir
}

// tree is what stands below a directory: each path with its mode, sorted.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all = append(all, fmt.Sprintf("%v %s", info.Mode(), strings.TrimPrefix(path, dir)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The package is installed below a directory of the test's, used, and removed; nothing is left, and the machine's own
// packages are as before.
func TestDeb(t *testing.T) {
	before, err := os.ReadFile("/var/lib/dpkg/status")
	if err != nil {
		t.Fatal(err)
	}
	dir := source(t)
	do(t, dir, "packaging/deb", version)
	deb := filepath.Join(dir, "dist", "golock_1.2.3+4.gabcdef0_amd64.deb")
	first, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err, tree(t, filepath.Join(dir, "dist")))
	}
	if len(first) > 20<<20 {
		t.Errorf("the package has %d bytes", len(first))
	}

	at := t.TempDir()
	for _, d := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "run", "etc", "usr"} {
		if err := os.MkdirAll(filepath.Join(at, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"var/lib/dpkg/status", "var/lib/dpkg/available", "usr/another-package"} {
		if err := os.WriteFile(filepath.Join(at, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := func(argv ...string) string {
		t.Helper()
		return do(t, at, append([]string{"dpkg", "--root=" + at, "--force-script-chrootless", "--log=/dev/null"}, argv...)...)
	}
	empty := tree(t, filepath.Join(at, "usr"))
	dpkg("--install", deb)
	if got := dpkg("--status", "golock"); !strings.Contains(got, "Status: install ok installed") {
		t.Errorf("after its installation: %s", got)
	}
	if got := do(t, at, "dpkg", "--root="+at, "--verify", "golock"); got != "" {
		t.Errorf("files that differ from the package's: %s", got)
	}
	if got := do(t, at, filepath.Join(at, "usr/bin/golock"), "version"); !strings.Contains(got, version) {
		t.Errorf("the program that was installed says %q", got)
	}
	if info, err := os.Stat(filepath.Join(at, "run/golock")); err != nil || info.Mode().Perm() != 0o777 || info.Mode()&fs.ModeSticky == 0 {
		t.Errorf("/run/golock: %v, %v; want it sticky and open to all", info, err)
	}

	installed := tree(t, filepath.Join(at, "usr"))
	for _, want := range []string{
		"-rwxr-xr-x /bin/golock",
		"-rw-r--r-- /share/man/man1/golock.1.gz",
		"-rw-r--r-- /share/bash-completion/completions/golock",
		"-rw-r--r-- /share/zsh/vendor-completions/_golock",
		"-rw-r--r-- /share/fish/vendor_completions.d/golock.fish",
		"-rw-r--r-- /lib/tmpfiles.d/golock.conf",
		"-rw-r--r-- /share/doc/golock/copyright",
		"-rw-r--r-- /share/doc/golock/changelog.gz",
		"-rw-r--r-- /share/doc/golock/README.md",
		"-rw-r--r-- /share/doc/golock/stores.md",
		"-rw-r--r-- /share/doc/golock/examples/cron/crontab",
		"-rw-r--r-- /share/doc/golock/examples/systemd/worker.service",
		"-rwxr-xr-x /share/doc/golock/examples/jobs/worker",
	} {
		if !slices.Contains(installed, want) {
			t.Errorf("not in the package: %s", want)
		}
	}
	for _, line := range installed {
		if mode := line[:10]; mode != "drwxr-xr-x" && mode != "-rw-r--r--" && mode != "-rwxr-xr-x" {
			t.Errorf("mode of %s", line)
		}
	}
	if got := do(t, at, "sh", "-c", "zcat usr/share/man/man1/golock.1.gz | mandoc -Tlint -Wwarning && man -l usr/share/man/man1/golock.1.gz"); !strings.Contains(got, "EXIT STATUS") {
		t.Errorf("the manual: %s", got)
	}
	// Links of the README lead to files of the package.
	readme, err := os.ReadFile(filepath.Join(at, "usr/share/doc/golock/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllSubmatch(readme, -1) {
		if _, err := os.Stat(filepath.Join(at, "usr/share/doc/golock", string(m[1]))); err != nil && string(m[1]) != "LICENSE" {
			t.Errorf("the README's link: %v", err)
		}
	}
	if got := do(t, at, "systemd-tmpfiles", "--root="+at, "--create", "golock.conf"); got != "" {
		t.Errorf("systemd-tmpfiles: %s", got)
	}

	// A lock that somebody has stays, with the directory.
	if err := os.Mkdir(filepath.Join(at, "run/golock/1000"), 0o700); err != nil {
		t.Fatal(err)
	}
	dpkg("--remove", "golock")
	if _, err := os.Stat(filepath.Join(at, "run/golock/1000")); err != nil {
		t.Error(err)
	}
	dpkg("--install", deb)
	if err := os.Remove(filepath.Join(at, "run/golock/1000")); err != nil {
		t.Fatal(err)
	}
	dpkg("--purge", "golock")
	if got := tree(t, filepath.Join(at, "usr")); !slices.Equal(got, empty) {
		t.Errorf("left after the removal: %q", got)
	}
	if got := tree(t, filepath.Join(at, "run")); len(got) != 1 {
		t.Errorf("left in /run: %q", got)
	}
	after, err := os.ReadFile("/var/lib/dpkg/status")
	if err != nil || bytes.Contains(after, []byte("Package: golock\n")) != bytes.Contains(before, []byte("Package: golock\n")) {
		t.Errorf("the machine's own packages have changed (%v)", err)
	}
}

// Debian's versions: they begin with a digit, and sort in the order of the commits.
func TestDebVersions(t *testing.T) {
	dir := source(t)
	// A small program in the place of the large one: to pack that takes seconds.
	program := filepath.Join(dir, "bin", "golock")
	do(t, dir, "mv", program, program+".real")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec \"$0.real\" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var last string
	for _, tt := range []struct{ version, want string }{
		{"abcdef0", "0~git.abcdef0"},
		{"v0.9.0", "0.9.0"},
		{"v1.2.3", "1.2.3"},
		{"v1.2.3-4-gabcdef0", "1.2.3+4.gabcdef0"},
		{"v1.2.3-14-gabcdef0-dirty", "1.2.3+14.gabcdef0+dirty"},
		{"v1.3.0", "1.3.0"},
	} {
		do(t, dir, "packaging/deb", tt.version)
		if _, err := os.Stat(filepath.Join(dir, "dist", "golock_"+tt.want+"_amd64.deb")); err != nil {
			t.Errorf("%s: %v", tt.version, tree(t, filepath.Join(dir, "dist")))
		}
		if last != "" {
			do(t, dir, "dpkg", "--compare-versions", last, "lt", tt.want)
		}
		last = tt.want
	}
}

// What the image of the Dockerfile holds, a golock and an empty /tmp, as PID 1: it reaps orphans, and passes TERM and exit
// codes on.
func TestScratch(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("an empty root needs root")
	}
	text, err := os.ReadFile(filepath.Join(root(t), "packaging", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"FROM scratch", "RUN mkdir -m 1777 /image/tmp", "COPY --from=build /image /", `ENTRYPOINT ["/golock"]`} {
		if !slices.Contains(strings.Split(string(text), "\n"), line) {
			t.Errorf("the Dockerfile has no line %s", line)
		}
	}
	image := t.TempDir()
	do(t, image, "install", filepath.Join(dist(t), "golock-"+version+"-linux-amd64"), "golock")
	do(t, image, "mkdir", "-m", "1777", "tmp")
	do(t, image, "mkdir", "proc", "dev") // docker mounts them
	do(t, image, "touch", "dev/null")
	build := exec.Command("go", "build", "-o", filepath.Join(image, "orphans"), "testdata/orphans.go")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	contain := func(argv ...string) *exec.Cmd {
		cmd := exec.Command("unshare", append([]string{"--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-ec",
			`mount -t proc proc "$0/proc" && mount --bind /dev/null "$0/dev/null" && exec chroot "$0" "$@"`, image}, argv...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		return cmd
	}
	out, err := contain("/golock", "run", "--name", "n", "--", "/orphans").CombinedOutput()
	if err != nil || string(out) != "clean\n" {
		t.Errorf("orphans: %v\n%s", err, out)
	}
	out, err = contain("/golock", "run", "--name", "n", "--", "/golock", "ls", "--json").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"state": "holding"`) {
		t.Errorf("ls inside: %v\n%s", err, out)
	}
	if out, err = contain("/golock").CombinedOutput(); err == nil || !strings.Contains(string(out), "golock --help") {
		t.Errorf("without a command: %v\n%s", err, out)
	}

	cmd := contain("/golock", "run", "--name", "n", "--", "/orphans", "term")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "in\n" {
		t.Fatalf("%q, %v", line, err)
	}
	// unshare's only child is PID 1 inside: what docker stop sends TERM to.
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(children), &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 17 {
		t.Errorf("after TERM: %v, want the command's own code, 17", err)
	}
}
