package main

import (
	"os/exec"
	"strings"
)

// machineFacts are commands whose first line describes what the figures belong
// to; $0 is the temporary directory, $1 golock.
var machineFacts = [][2]string{
	{"processor", `sed -n 's/^model name.*: //p' /proc/cpuinfo`},
	{"cores", "nproc"},
	{"kernel", "uname -sr"},
	{"file system of the locks", `stat -f -c %T "$0"`},
	{"100 writes to the disk there", `dd if=/dev/zero of="$0/sync" bs=512 count=100 oflag=dsync 2>&1 |
		sed -n 's/.*, \(.* s\),.*/\1/p'`},
	{"load before the start", "cut -d' ' -f1-3 /proc/loadavg"},
	{"golock", `"$1" version`},
	{"flock", "flock --version"},
	{"sem", "sem --version"},
	{"Redis", "redis-server --version"},
	{"MariaDB", "mariadb --version"},
	{"PostgreSQL", "psql --version"},
	{"etcd", "etcd --version"},
}

func (b *bench) machine() (about [][]string) {
	for _, fact := range machineFacts {
		out, _ := exec.Command("sh", "-c", fact[1], b.dir, b.golock).Output()
		line, _, _ := strings.Cut(string(out), "\n")
		about = append(about, []string{fact[0], line})
	}
	return about
}
