//go:build integration

package answers_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"golock/test/testkit"
)

// without is a script that makes a root of its own, without a part of the machine, and executes each
// line of a file there. It prints the exit code of each, and what it printed.
const without = `
missing=$1 golock=$2 lines=$3 root=$4
mount -t tmpfs none "$root" && cd "$root" || exit
mkdir data data/bin data/local data/mkdir run
cp "$golock" data/bin/golock && cp "$lines" data/lines || exit
for dir in usr bin sbin lib lib32 lib64 etc; do
	if test -L /$dir; then cp -P /$dir .; elif test -d /$dir; then mkdir $dir && mount --bind /$dir $dir; fi
done
test "$missing" = /proc || { mkdir proc && mount --rbind /proc proc; }
test "$missing" = /dev || { mkdir dev && mount --rbind /dev dev; }
test "$missing" = /tmp || mkdir -m 1777 tmp
test "$missing" != writable || { mount --bind data data && mount -o remount,bind,ro .; }
test "$missing" = /tmp || export HOME=/data # without both at once: few commands need either
export PATH=/data/bin:/usr/bin:/bin
exec /usr/sbin/chroot . sh -fc 'cd /data; IFS="
"; while read -r line; do
	answer=$(IFS=" "; eval "$line" 2>&1 <lines)
	echo "code $?"
	printf " %s\n" $answer
done <lines'
`

// noID is an ID that nobody has.
const noID = "00000000000000000000000000000000-00000000000000000000000000000000"

// Without a part of the machine every command does what it can without it, or names what is missing, with
// the exit code of that reason. No system call that failed is the whole answer.
func TestMissingPartsOfTheMachine(t *testing.T) {
	t.Parallel()
	const store = "--store mkdir:///data/mkdir "
	const proc, dev, readOnly = "69 needs /proc, which is not ", "69 needs /dev/null, which is not there: mount /dev", "69 read-only file system (in a systemd unit: ReadWritePaths=/tmp)"
	const acquire = `; code=$?; test -s id || echo ` + noID + ` >id; exit $code`
	commands := []struct {
		line   string
		usual  string            // the code, and words of the answer
		except map[string]string // by what is missing
	}{
		{"golock run --name n -- true", "0", map[string]string{"writable": readOnly}},
		{"golock run --name n -n -- golock run --name n -- true", "64 enclosing run", map[string]string{"writable": readOnly}},
		{"golock run --name n -- golock held", "0", map[string]string{"writable": readOnly}},
		{"golock run --name n --tree -- true", "0", map[string]string{"/proc": "64 needs /proc", "writable": readOnly}},
		{"golock run --name n --exec -- true", "0", map[string]string{"writable": readOnly}},
		{"golock run --name n --report /data/report -- true", "0", map[string]string{"writable": readOnly}},
		{"golock run --store local:///data/local --name n -- true", "0", nil},
		{"golock run " + store + "--name n -- golock held", "0", map[string]string{"/proc": proc}},
		{"golock run " + store + "--name n --on-lost warn -- true", "0", nil},
		{"golock acquire --name a --for $$ >id" + acquire, "0", map[string]string{"/proc": proc, "/dev": dev, "writable": readOnly}},
		{"golock held --id $(cat id)", "0", map[string]string{"/proc": "79", "/dev": "79", "writable": "79"}},
		{"golock renew $(cat id)", "0", map[string]string{"/proc": "79 not held", "/dev": "79 not held", "writable": "79 not held"}},
		{"golock ls", "0", nil},
		{"golock ls --json", "0", nil},
		{"golock release $(cat id)", "0", map[string]string{"/proc": "79 not held", "/dev": "79 not held", "writable": "79 not held"}},
		{"rm id; golock acquire " + store + "--name a --for $$ >id" + acquire, "0", map[string]string{"/proc": proc, "/dev": dev}},
		{"golock held " + store + "--id $(cat id)", "0", map[string]string{"/proc": "79", "/dev": "79"}},
		{"golock release " + store + "$(cat id)", "0", map[string]string{"/proc": "79 not held", "/dev": "79 not held"}},
		{"golock ls " + store, "0", nil},
		{"golock break free", "0 nothing", nil},
		{`setsid -f golock run --store local:///data/local --name held -- sh -c ": >in; until test -e out; do sleep 0.1; done" <lines >err 2>&1; ` +
			`until test -e in; do sleep 0.1; done; golock break --store local:///data/local held; code=$?; : >out; exit $code`,
			"0 evicted", map[string]string{"/proc": "69 /proc, which tells whether it is the process of that lock, is not mounted here"}},
		{"golock clean", "0", nil},
		{"golock clean " + store, "0", nil},
		{"golock check --store local:///data/local --loops 1 --children 1", "0", map[string]string{
			"/proc": proc, "/dev": dev, "/tmp": "69 needs /tmp, which is not there: set TMPDIR", "writable": "69 cannot use /tmp: read-only file system: set TMPDIR"}},
		{"golock doctor", "1", map[string]string{"/proc": "1 /proc: is not mounted\n", "writable": "1 ReadWritePaths=/tmp"}},
		{"golock doctor " + store, "0", map[string]string{"/proc": "1 /proc: is not mounted\n"}},
		{"golock held", "64 not inside a golock run", nil},
		{"golock complete ru", "0 run", nil},
		{"golock completion bash", "0 complete", nil},
		{"golock report /data/none", "0 does not exist yet", nil},
		{"golock version", "0 golock", nil},
		{"golock help", "0 Usage", nil},
		{"golock manual", "0 SYNOPSIS", nil},
	}
	s := testkit.New(t, "")
	var lines strings.Builder
	for _, c := range commands {
		lines.WriteString(c.line + "\n")
	}
	s.Write("lines", lines.String())
	raw := regexp.MustCompile(`(readlink|open|stat|fork/exec) /(proc|dev|tmp|run)`)
	for _, missing := range []string{"nothing", "/proc", "/dev", "/tmp", "writable"} {
		root := s.Path("root of " + strings.Trim(missing, "/"))
		testkit.Must(t, os.Mkdir(root, 0o755))
		r := s.Exec("unshare", "--mount", "--propagation", "private", "sh", "-c", without, "sh", missing, testkit.Golock, s.Path("lines"), root).Run()
		answers := strings.Split("\n"+r.Stdout, "\ncode ")[1:]
		if len(answers) != len(commands) {
			t.Fatalf("without %s: %d answers to %d commands: %v", missing, len(answers), len(commands), r)
		}
		for i, c := range commands {
			want, ok := c.except[missing]
			if !ok {
				want = c.usual
			}
			code, words, _ := strings.Cut(want, " ")
			got, text, _ := strings.Cut(answers[i], "\n")
			if got != code || !strings.Contains(text, words) || missing != "nothing" && raw.MatchString(text) {
				t.Errorf("without %s: %s: code %s,\n%s\nwant %s", missing, c.line, got, text, want)
			}
		}
	}
}
