//go:build integration

// Package packages_test makes what is given to users, binaries, the Debian package and what the image holds, and uses it
// as they would. Nothing of it is installed on the machine of the test.
package packages_test

import (
	"bytes"
	"crypto/tls"
	"debug/buildinfo"
	"debug/elf"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

const version = "1.2.3+git20261122.abcdef0"

var root, _ = filepath.Abs("../..")

// leastCompression has dpkg-deb spend a tenth of the time.
const leastCompression = "DPKG_DEB_COMPRESSOR_LEVEL=0"

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

// dist makes, once, the binaries of this machine and of one with 32 bits. The others would cost as much
// again on a cold cache, and a release makes them.
var made string

// arch32 is the machine with 32 bits for which make test compiles anyhow: 386 where the kernel runs its
// programs, else arm (test/run).
func arch32(t *testing.T) (name string, machine elf.Machine) {
	t.Helper()
	runs, err := testkit.Runs386()
	testkit.Must(t, err)
	if runs {
		return "386", elf.EM_386
	}
	return "arm", elf.EM_ARM
}

func dist(t *testing.T) string {
	t.Helper()
	if made == "" {
		dir, err := os.MkdirTemp("", "golock-dist")
		testkit.Must(t, err)
		other, _ := arch32(t)
		do(t, root, "make", "dist", "DIST="+dir, "VERSION="+version, "ARCHS=amd64 "+other)
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

// A binary for each machine, and an archive of both programs: static, with its version, and with a checksum that is right.
func TestDist(t *testing.T) {
	dir := dist(t)
	other, ofOther := arch32(t)
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, other: ofOther}
	do(t, dir, "sha256sum", "--check", "--strict", "SHA256SUMS")
	if sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS")); err != nil || bytes.Count(sums, []byte("\n")) != 2*len(machines) {
		t.Errorf("SHA256SUMS: %v\n%s", err, sums)
	}
	for arch, machine := range machines {
		file := filepath.Join(dir, "golock-"+version+"-linux-"+arch)
		f, err := elf.Open(file)
		testkit.Must(t, err)
		defer f.Close()
		if f.Machine != machine {
			t.Errorf("%s: for %v", arch, f.Machine)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("%s: is not static", arch)
			}
		}
		if err := exec.Command(file, "version").Run(); errors.Is(err, syscall.ENOEXEC) && arch != runtime.GOARCH {
			t.Logf("%s: this kernel runs no such programs", arch)
			continue
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

// The archive has what its reader needs, and installs itself. So does make install, also below a
// directory with blanks.
func TestInstall(t *testing.T) {
	archive, from := unpack(t), source(t)
	for _, name := range []string{"LICENSE", "INSTALL", "install"} {
		if _, err := os.Stat(filepath.Join(archive, name)); err != nil {
			t.Error(err)
		}
	}
	checkLicenses(t, filepath.Join(archive, "THIRD-PARTY-LICENSES"))
	below := t.TempDir()
	do(t, below, "env", "PREFIX="+below+"/by archive", archive+"/install")
	do(t, from, "make", "install", "DESTDIR="+below+"/a path with a blank", "PREFIX=/usr")
	do(t, from, "make", "install", "PREFIX="+below+"/it's $$HOME")
	for _, prefix := range []string{"by archive", "a path with a blank/usr", "it's $HOME"} {
		dir := filepath.Join(below, prefix)
		for _, want := range []string{
			"Lrwxrwxrwx /bin/golock", "-rwxr-xr-x /libexec/golock/golock-" + version, "-rwxr-xr-x /libexec/golock/lean-" + version,
			"-rw-r--r-- /share/man/man1/golock.1.gz", "-rw-r--r-- /share/bash-completion/completions/golock",
			"-rw-r--r-- /share/zsh/site-functions/_golock", "-rw-r--r-- /share/fish/vendor_completions.d/golock.fish",
			"-rw-r--r-- /share/doc/golock/runbook.md", "-rw-r--r-- /share/doc/golock/pictures/lease.svg",
			"-rwxr-xr-x /share/doc/golock/examples/jobs/worker",
		} {
			if got := tree(t, dir); !slices.Contains(got, want) {
				t.Errorf("not installed in %q: %s; there is %q", prefix, want, got)
			}
		}
		if got := do(t, below, filepath.Join(dir, "bin/golock"), "--help"); !strings.Contains(got, "Usage") {
			t.Errorf("%q: %s", prefix, got)
		}
	}
	if got, err := os.ReadDir(below); err != nil || len(got) != 3 {
		t.Errorf("installed elsewhere too: %v, %v", got, err)
	}
}

// checkLicenses demands that a file has the licences of Go and of each module that the programs are linked
// with.
func checkLicenses(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	linked, err := buildinfo.ReadFile(filepath.Join(dist(t), "golock-"+version+"-linux-amd64"))
	testkit.Must(t, err)
	names := []string{"Go, " + linked.GoVersion}
	for _, module := range linked.Deps {
		names = append(names, module.Path+"@"+module.Version)
	}
	if len(names) < 10 {
		t.Errorf("only %q are linked", names)
	}
	for _, name := range names {
		license := regexp.MustCompile(`(?m)^== ` + regexp.QuoteMeta(name) + `: (LICEN[CS]E|COPYING|copyright).*\n\n(.*\n){4}`)
		if !license.Match(text) {
			t.Errorf("%s: no licence of %s", file, name)
		}
	}
}

// A Go that does not understand the version in go.mod is told which one is needed.
func TestOldGo(t *testing.T) {
	dir := copySource(t)
	do(t, root, "cp", "go.mod", dir)
	const old = "#!/bin/sh\n" + `case $1 in
version) echo "go version go1.19.8 linux/amd64" ;;
*) echo "go: errors parsing go.mod: invalid go version '1.26.0': must match format 1.23" >&2; exit 1 ;;
esac`
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "go"), []byte(old), 0o755))
	for _, target := range []string{"build", "dist", "test-short"} {
		out, err := exec.Command("make", "-C", dir, target, "GO=./go", "VERSION=1").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "golock needs Go 1.26") || !strings.Contains(string(out), "go1.19.8") {
			t.Errorf("make %s with an old Go: %v, %s", target, err, out)
		}
	}
}

// source is a copy of what packaging/deb needs, with the binary of this machine.
func source(t *testing.T) string {
	t.Helper()
	dir := copySource(t)
	do(t, root, "install", "-D", filepath.Join(dist(t), "golock-"+version+"-linux-amd64"), filepath.Join(dir, "bin", "golock"))
	do(t, root, "install", filepath.Join(unpack(t), "bin", "golock"), filepath.Join(dir, "bin", "golock-lean"))
	return dir
}

// copySource is source without programs.
func copySource(t *testing.T) string {
	t.Helper()
	dir, from := t.TempDir(), root
	for _, name := range []string{"packaging", "docs"} {
		do(t, from, "cp", "-R", name, dir)
	}
	for _, name := range []string{"Makefile", "README.md", "CHANGELOG.md", "LICENSE"} {
		do(t, from, "cp", name, dir)
	}
	return dir
}

// unpack unpacks the archive of this machine and gives its directory.
func unpack(t *testing.T) string {
	t.Helper()
	dir, name := t.TempDir(), "golock-"+version+"-linux-amd64"
	do(t, dir, "tar", "-xzf", filepath.Join(dist(t), name+".tar.gz"))
	return filepath.Join(dir, name)
}

// The lean program serves local stores by itself, and becomes the full one of its version for a server's, and for all that
// there is to say about the command line. Without that it says what is missing.
func TestLean(t *testing.T) {
	dir := unpack(t)
	golock, full := filepath.Join(dir, "bin/golock"), filepath.Join(dir, "libexec/golock/golock-"+version)
	run := func(store string, command ...string) (code int, output string) {
		t.Helper()
		cmd := exec.Command(golock, append([]string{"run", "--name", "n", "--store", store, "--"}, command...)...)
		text, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(text)
	}
	local, server := "local://"+t.TempDir(), redistest.Start(t).URL("quarantine=0s")
	programs := "readlink /proc/$PPID/exe /proc/$(ps -o ppid= -p $PPID | tr -d ' ')/exe; "
	look := []string{"sh", "-c", golock + " held && " + golock + " ls --store " + server + "; " + programs + "exit 7"}
	lean := filepath.Join(dir, "libexec/golock/lean-"+version)
	if code, text := run(server, look...); code != 7 || !strings.Contains(text, "holding") || !strings.Contains(text, lean+"\n"+full+"\n") {
		t.Errorf("on a server: exit code %d, %s", code, text)
	}
	// The lean watchdog of a golock that is killed executes golock's program to release the lease.
	t.Setenv("GOLOCK_WAIT", "15s") // the lease lasts for 30 s
	run(server, "sh", "-c", "mv "+full+" "+full+".0; kill -9 $(ps -o ppid= -p $PPID)")
	do(t, dir, "mv", full+".0", full)
	if code, text := run(server, "true"); code != 0 {
		t.Errorf("after a golock was killed: exit code %d, %s", code, text)
	}
	// Without the lean watchdog the full program is one, and nothing else in PATH.
	do(t, dir, "mv", lean, lean+".0")
	do(t, dir, "ln", "-sf", lean+".0", golock)
	do(t, dir, "sh", "-c", "echo 'echo decoy' >golock-watchdog; cp golock-watchdog "+lean+"; chmod +x golock-watchdog; chmod a-x "+lean)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if code, text := run(server, "echo", "ran"); code != 0 || text != "ran\n" {
		t.Errorf("without a watchdog: exit code %d, %s", code, text)
	}
	if code, text := run(local, "sh", "-c", "readlink /proc/$PPID/exe"); code != 0 || text != lean+".0\n" {
		t.Errorf("on local: exit code %d, %s", code, text)
	}
	for _, variable := range []string{"", "3"} { // golock's own value for the runtime is not the command's
		if variable != "" {
			t.Setenv("GOMAXPROCS", variable)
		}
		if code, text := run(local, "sh", "-c", "echo $GOMAXPROCS"); code != 0 || text != variable+"\n" {
			t.Errorf("GOMAXPROCS=%s: exit code %d, %s", variable, code, text)
		}
	}
	for _, line := range []string{"", "--help", "run -h", "run --no-such-flag", "nosuch", "grammarCommands", "completion bash", "manual"} {
		said := func(program string) string {
			cmd := exec.Command(program, strings.Fields(line)...)
			text, _ := cmd.CombinedOutput()
			return fmt.Sprintln(cmd.ProcessState) + string(text)
		}
		if lean, all := said(golock), said(full); lean != all || len(all) < 30 {
			t.Errorf("golock %s: %s; the full program: %s", line, lean, all)
		}
	}
	instants := testkit.Rounds(10, 40)
	for i := range instants { // no signal is lost on the way from one to the other
		cmd := exec.Command(golock, "run", "--name", "n", "--store", server, "--time-limit", "5s", "--", "sleep", "60")
		testkit.Must(t, cmd.Start())
		after := 8 * time.Millisecond * time.Duration(i) / time.Duration(instants)
		time.Sleep(after)
		_ = cmd.Process.Signal(unix.SIGUSR1)
		_ = cmd.Wait()
		if how := cmd.ProcessState.Sys().(syscall.WaitStatus); how.Signal() != unix.SIGUSR1 {
			t.Fatalf("USR1 %v after the start: %v", after, cmd.ProcessState)
		}
	}
	text, err := exec.Command("unshare", "--mount", "sh", "-c", "umount -l /proc; exec "+golock+" run --name n --store "+server+" -- true").CombinedOutput()
	if err == nil || !strings.Contains(string(text), "full program, which is found by /proc") {
		t.Errorf("without /proc: %v, %s", err, text)
	}
	do(t, dir, "mv", full, full+".1")
	if code, text := run(server, "true"); code != 69 || !strings.Contains(text, full) || !strings.Contains(text, "the package golock "+version) {
		t.Errorf("with another version's full program: exit code %d, %s", code, text)
	}
	if text, err := exec.Command(golock, "--help").CombinedOutput(); err == nil || !strings.Contains(string(text), "help, completion, report and what is wrong") {
		t.Errorf("help with another version's full program: %v, %s", err, text)
	}
	if code, text := run(local, golock, "held"); code != 0 || text != "" {
		t.Errorf("on local, with another version's full program: exit code %d, %s", code, text)
	}
}

// The lean program does not become one that another user could have put there.
func TestLeanOfOthers(t *testing.T) {
	dir, server := unpack(t), redistest.Start(t).URL("quarantine=0s")
	libexec := filepath.Join(dir, "libexec/golock")
	full := filepath.Join(libexec, "golock-"+version)
	run := func(code int, says ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, "bin/golock"), "run", "--name", "n", "--store", server, "--", "echo", "started")
		text, _ := cmd.CombinedOutput()
		missing := slices.ContainsFunc(says, func(word string) bool { return !strings.Contains(string(text), word) })
		if cmd.ProcessState.ExitCode() != code || missing {
			t.Errorf("%v, %s; want exit code %d and %q", cmd.ProcessState, text, code, says)
		}
	}
	for _, path := range []string{full, libexec} {
		do(t, dir, "chown", "20001", path)
		run(69, full, path+" belongs to user 20001", "chown")
		do(t, dir, "chown", "0", path)
		do(t, dir, "chmod", "go+w", path)
		run(69, full, "other users can write to "+path, "chmod go-w")
		do(t, dir, "chmod", "go-w", path)
	}
	do(t, dir, "mv", full, filepath.Join(dir, "other"))
	do(t, dir, "ln", "-s", "/bin/sh", full)
	do(t, dir, "chown", "-h", "20001", full)
	run(69, full+" belongs to user 20001")
	do(t, dir, "ln", "-sf", "../../other", full)
	do(t, dir, "chmod", "a+w", dir)
	run(69, "other users can write to "+dir)
	do(t, dir, "chmod", "go-w", dir)
	do(t, dir, "chown", "-R", "20001", dir) // a user's own
	run(0, "started")
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
	testkit.Must(t, err)
	return all
}

// emptyRoot is a directory that dpkg can install into.
func emptyRoot(t *testing.T) string {
	t.Helper()
	at := t.TempDir()
	for _, d := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "run", "etc", "usr"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(at, d), 0o755))
	}
	for _, f := range []string{"var/lib/dpkg/status", "var/lib/dpkg/available", "usr/another-package", "etc/another-package"} {
		testkit.Must(t, os.WriteFile(filepath.Join(at, f), nil, 0o644))
	}
	return at
}

// The package is installed below a directory of the test's, used, and removed; nothing is left, and the machine's own
// packages are as before.
func TestDeb(t *testing.T) {
	before, err := os.ReadFile("/var/lib/dpkg/status")
	testkit.Must(t, err)
	dir := source(t)
	const maintainer = "Ann O'Neil <ann@example.org>"
	// lintian, and dpkg before 1.21.18, read no package that zstd has compressed, as on Ubuntu. The
	// least compression is small enough already.
	do(t, dir, "env", "DPKG_DEB_COMPRESSOR_TYPE=zstd", leastCompression, "make", "--old-file=build", "deb", "VERSION="+version, "MAINTAINER="+maintainer)
	deb := filepath.Join(dir, "dist", "golock_"+version+"_amd64.deb")
	checkDeb(t, deb)

	at := emptyRoot(t)
	dpkg := func(argv ...string) string {
		t.Helper()
		return do(t, at, append([]string{"dpkg", "--root=" + at, "--force-script-chrootless", "--log=/dev/null"}, argv...)...)
	}
	empty := tree(t, filepath.Join(at, "usr"))
	dpkg("--install", deb)
	status := dpkg("--status", "golock")
	for _, line := range []string{"Status: install ok installed", "Version: " + version, "Maintainer: " + maintainer, "Conffiles:\n /etc/golock.toml "} {
		if !strings.Contains(status, line) {
			t.Errorf("after its installation, without %q: %s", line, status)
		}
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
	checkRootDirectory(t, at, func() { dpkg("--install", deb) })

	checkInstalled(t, at)
	checkDocs(t, at, maintainer)
	checkLicenses(t, filepath.Join(at, "usr/share/doc/golock/copyright"))
	checkSettings(t, at)

	// What the admin writes into the settings stays until the purge.
	settings := filepath.Join(at, "etc/golock.toml")
	do(t, at, "sed", "-i", "s/^#max = .*/max = 2/", settings)
	changed := do(t, at, "cat", settings)
	if got := do(t, at, "systemd-tmpfiles", "--root="+at, "--create", "golock.conf"); got != "" {
		t.Errorf("systemd-tmpfiles: %s", got)
	}

	// A lock that somebody has stays, with the directory.
	testkit.Must(t, os.Mkdir(filepath.Join(at, "run/golock/1000"), 0o700))
	dpkg("--remove", "golock")
	if _, err := os.Stat(filepath.Join(at, "run/golock/1000")); err != nil {
		t.Error(err)
	}
	dpkg("--install", deb)
	if got := do(t, at, "cat", settings); got != changed {
		t.Errorf("/etc/golock.toml after another installation: %q", got)
	}
	testkit.Must(t, os.Remove(filepath.Join(at, "run/golock/1000")))
	dpkg("--purge", "golock")
	if got := tree(t, filepath.Join(at, "usr")); !slices.Equal(got, empty) {
		t.Errorf("left after the removal: %q", got)
	}
	if got := tree(t, filepath.Join(at, "run")); len(got) != 1 {
		t.Errorf("left in /run: %q", got)
	}
	if _, err := os.Stat(settings); err == nil {
		t.Error("left: /etc/golock.toml")
	}
	after, err := os.ReadFile("/var/lib/dpkg/status")
	if err != nil || bytes.Contains(after, []byte("Package: golock\n")) != bytes.Contains(before, []byte("Package: golock\n")) {
		t.Errorf("the machine's own packages have changed (%v)", err)
	}
}

// checkRootDirectory demands that root's directory for locks is made by the package, at boot too,
// and replaces what another user put there, with all that is in it.
func checkRootDirectory(t *testing.T, at string, install func()) {
	t.Helper()
	locks := filepath.Join(at, "run/golock")
	look := func(when string) {
		t.Helper()
		if got := strings.TrimSpace(do(t, locks, "sh", "-c", "stat -c '%A %u:%g %n' 0; ls 0")); got != "drwx------ 0:0 0" {
			t.Errorf("root's directory for locks %s: %s", when, got)
		}
	}
	look("after the installation")
	for i, squat := range []string{"mkdir 0 && touch 0/x.lock && chown -hR 20001 0", "touch 0 && chown 20001 0", "mkdir x && ln -s x 0 && chown -h 20001 0"} {
		do(t, locks, "sh", "-ec", "rm -r 0; "+squat)
		if i == 0 {
			install()
		} else { // which does this, and takes a hundred times as long
			do(t, at, "env", "DPKG_ROOT="+at, filepath.Join(at, "var/lib/dpkg/info/golock.postinst"), "configure")
		}
		look("after: " + squat)
	}
	do(t, locks, "rm", "-r", "x")
	do(t, at, "rm", "-r", locks)
	do(t, at, "systemd-tmpfiles", "--root="+at, "--create", "golock.conf")
	look("after the start of the machine")
	if info, err := os.Stat(locks); err != nil || info.Mode().Perm() != 0o777 || info.Mode()&fs.ModeSticky == 0 {
		t.Errorf("/run/golock after the start of the machine: %v, %v", info, err)
	}
}

// checkDeb demands a small package that lintian accepts. make deps does not install
// lintian: it brings a hundred packages.
func checkDeb(t *testing.T, deb string) {
	t.Helper()
	info, err := os.Stat(deb)
	if err != nil {
		t.Fatal(err, tree(t, filepath.Dir(deb)))
	}
	if info.Size() > 20<<20 {
		t.Errorf("the package has %d bytes", info.Size())
	}
	if got := do(t, filepath.Dir(deb), "ar", "t", deb); !strings.Contains(got, "data.tar.xz") {
		t.Errorf("the package consists of %q", got)
	}
	if _, err := exec.LookPath("lintian"); err == nil {
		if got := do(t, filepath.Dir(deb), "lintian", "--fail-on=error,warning", deb); got != "" {
			t.Errorf("lintian: %s", got)
		}
	}
}

// checkInstalled demands the files of the package, with the right modes.
func checkInstalled(t *testing.T, at string) {
	t.Helper()
	installed := tree(t, filepath.Join(at, "usr"))
	for _, want := range []string{
		"Lrwxrwxrwx /bin/golock",
		"-rwxr-xr-x /libexec/golock/golock-" + version,
		"-rwxr-xr-x /libexec/golock/lean-" + version,
		"-rw-r--r-- /share/man/man1/golock.1.gz",
		"-rw-r--r-- /share/bash-completion/completions/golock",
		"-rw-r--r-- /share/zsh/vendor-completions/_golock",
		"-rw-r--r-- /share/fish/vendor_completions.d/golock.fish",
		"-rw-r--r-- /lib/tmpfiles.d/golock.conf",
		"-rw-r--r-- /share/doc/golock/copyright",
		"-rw-r--r-- /share/doc/golock/changelog.gz",
		"-rw-r--r-- /share/doc/golock/README.md",
		"-rw-r--r-- /share/doc/golock/stores.md",
		"-rw-r--r-- /share/doc/golock/pictures/session.svg",
		"-rw-r--r-- /share/doc/golock/examples/cron/crontab",
		"-rw-r--r-- /share/doc/golock/examples/systemd/worker.service",
		"-rwxr-xr-x /share/doc/golock/examples/jobs/worker",
	} {
		if !slices.Contains(installed, want) {
			t.Errorf("not in the package: %s", want)
		}
	}
	for _, line := range installed {
		if mode := line[:10]; line != "Lrwxrwxrwx /bin/golock" && mode != "drwxr-xr-x" && mode != "-rw-r--r--" && mode != "-rwxr-xr-x" {
			t.Errorf("mode of %s", line)
		}
	}
}

// checkDocs demands a manual, links and a changelog that their readers understand.
func checkDocs(t *testing.T, at, maintainer string) {
	t.Helper()
	if got := do(t, at, "sh", "-c", "zcat usr/share/man/man1/golock.1.gz | mandoc -Tlint -Wwarning && man -l usr/share/man/man1/golock.1.gz"); !strings.Contains(got, "EXIT STATUS") {
		t.Errorf("the manual: %s", got)
	}
	checkLinks(t, filepath.Join(at, "usr/share/doc/golock"))
	do(t, at, "gunzip", "--keep", "usr/share/doc/golock/changelog.gz")
	changelog := do(t, at, "dpkg-parsechangelog", "-l", "usr/share/doc/golock/changelog")
	for _, line := range []string{"Version: " + version, "Maintainer: " + maintainer} {
		if !strings.Contains(changelog, line+"\n") {
			t.Errorf("the changelog has no %q: %s", line, changelog)
		}
	}
	do(t, at, "rm", "usr/share/doc/golock/changelog")
}

// checkSettings demands the sample that golock makes, where golock reads it.
func checkSettings(t *testing.T, at string) {
	t.Helper()
	settings, golock := filepath.Join(at, "etc/golock.toml"), filepath.Join(at, "usr/bin/golock")
	if info, err := os.Stat(settings); err != nil || info.Mode() != 0o644 {
		t.Fatalf("/etc/golock.toml: %v, %v", info, err)
	}
	if got, want := do(t, at, "cat", settings), do(t, at, golock, "manual", "--toml"); got != want {
		t.Errorf("/etc/golock.toml has %q, want %q", got, want)
	}
	do(t, at, golock, "run", "--config", settings, "--store", "local://"+t.TempDir(), "--name", "n", "--", "true")
}

// checkLinks demands that links between pages lead to files of the package.
func checkLinks(t *testing.T, doc string) {
	t.Helper()
	pages, links := do(t, doc, "find", ".", "-name", "*.md"), 0
	for page := range strings.FieldsSeq(pages) {
		text := do(t, doc, "cat", page)
		for _, m := range regexp.MustCompile(`\]\(([^)#: ]+)[)#]`).FindAllStringSubmatch(text, -1) {
			links++
			if _, err := os.Stat(filepath.Join(doc, filepath.Dir(page), m[1])); err != nil {
				t.Errorf("link of %s: %v", page, err)
			}
		}
	}
	if links < 30 {
		t.Errorf("only %d links in %s", links, pages)
	}
}

// Versions are Debian's: a commit sorts before the first release, and after the release that it follows.
func TestVersions(t *testing.T) {
	dir := t.TempDir()
	do(t, root, "install", "-D", "packaging/version", filepath.Join(dir, "packaging/version"))
	current := func() string { return strings.TrimSpace(do(t, t.TempDir(), filepath.Join(dir, "packaging/version"))) }
	git := func(argv ...string) {
		t.Helper()
		do(t, dir, append([]string{"env", "GIT_COMMITTER_DATE=2026-11-22T23:30:00-0100", "git", "-c", "user.name=n", "-c", "user.email=e"}, argv...)...)
	}
	if got := current(); got != "1.0.0~devel" {
		t.Errorf("without git: %s", got)
	}
	git("init", "-q")
	git("add", ".")
	last := "0.9"
	for _, tt := range []struct{ tag, dirty, want string }{
		{"", "", `1\.0\.0~git20261123\.[0-9a-f]+`},
		{"", "dirty", `1\.0\.0~git20261123\.[0-9a-f]+\+dirty`},
		{"v1.0.0-rc1", "", `1\.0\.0~rc1`},
		{"v1.0.0", "", `1\.0\.0`},
		{"", "", `1\.0\.0\+git20261123\.[0-9a-f]+`},
		{"", "dirty", `1\.0\.0\+git20261123\.[0-9a-f]+\+dirty`},
		{"v1.0.1", "dirty", `1\.0\.1\+git20261123\.[0-9a-f]+\+dirty`},
		{"v1.1.0", "", `1\.1\.0`},
	} {
		if tt.dirty == "" || tt.tag != "" {
			git("commit", "-q", "-a", "--allow-empty", "-m", "m")
		}
		if tt.tag != "" {
			git("tag", tt.tag)
		}
		if tt.dirty != "" {
			do(t, dir, "sh", "-c", "echo '# changed' >>packaging/version")
		}
		got := current()
		if !regexp.MustCompile("^" + tt.want + "$").MatchString(got) {
			t.Errorf("tag %q %s: %s, want %s", tt.tag, tt.dirty, got, tt.want)
		}
		do(t, dir, "dpkg", "--compare-versions", last, "lt", got)
		last = got
	}
}

// What the image of the Dockerfile holds, a golock and an empty /tmp: golock runs there. (As PID 1:
// TestPID1.)
func TestScratch(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "packaging", "Dockerfile"))
	testkit.Must(t, err)
	image, bin := t.TempDir(), t.TempDir()
	do(t, bin, "install", "-D", filepath.Join(dist(t), "golock-"+version+"-linux-amd64"), "bin/golock")
	_, commands, _ := strings.Cut(string(text), "\nRUN make build")
	commands, final, _ := strings.Cut(commands, "\nFROM scratch\n")
	do(t, root, "cp", "-R", "packaging", "LICENSE", bin)
	for _, m := range regexp.MustCompile(`(?m)^RUN (.*)$`).FindAllStringSubmatch(commands, -1) {
		do(t, bin, "sh", "-c", strings.ReplaceAll(m[1], "/image", image))
	}
	for _, line := range []string{"COPY --from=build /image /", `ENTRYPOINT ["/golock"]`} {
		if !slices.Contains(strings.Split(final, "\n"), line) {
			t.Errorf("the Dockerfile's image has no line %s", line)
		}
	}
	checkLicenses(t, filepath.Join(image, "THIRD-PARTY-LICENSES"))
	do(t, image, "mkdir", "proc", "dev") // docker mounts them
	do(t, image, "touch", "dev/null")
	contain := func(argv ...string) *exec.Cmd {
		cmd := exec.Command("unshare", append([]string{"--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-ec",
			`mount -t proc proc "$0/proc" && mount --bind /dev/null "$0/dev/null" && exec chroot "$0" "$@"`, image}, argv...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		return cmd
	}
	out, err := contain("/golock", "run", "--name", "n", "--", "/golock", "ls", "--json").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"state": "holding"`) {
		t.Errorf("ls inside: %v\n%s", err, out)
	}
	if out, err = contain("/golock").CombinedOutput(); err == nil || !strings.Contains(string(out), "golock -h") {
		t.Errorf("without a command: %v\n%s", err, out)
	}
	checkTLS(t, image, contain)
}

// checkTLS demands that golock in the image trusts a server whose certificate is
// among those of the image.
func checkTLS(t *testing.T, image string, contain func(...string) *exec.Cmd) {
	t.Helper()
	server := httptest.NewTLSServer(nil) // for its certificate
	defer server.Close()
	file, err := os.OpenFile(filepath.Join(image, "etc/ssl/certs/ca-certificates.crt"), os.O_WRONLY|os.O_APPEND, 0)
	testkit.Must(t, err)
	defer file.Close()
	testkit.Must(t, pem.Encode(file, &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server.TLS)
	testkit.Must(t, err)
	defer listener.Close()
	trusted := make(chan error, 1)
	go func() {
		c, err := listener.Accept()
		if err == nil {
			err = c.(*tls.Conn).Handshake()
			c.Close()
		}
		trusted <- err
	}()
	out, _ := contain("/golock", "ls", "--store", "rediss://"+listener.Addr().String()).CombinedOutput() // it is no Redis
	listener.Close()
	if err := <-trusted; err != nil {
		t.Errorf("the image's golock does not trust a server: %v\n%s", err, out)
	}
}
