package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine describes what the figures belong to.
func (b *bench) machine() section {
	var uts unix.Utsname
	_ = unix.Uname(&uts)
	memory, _ := keyed("/proc/meminfo")
	load, _ := os.ReadFile("/proc/loadavg")
	rows := [][]string{
		{"date", time.Now().UTC().Format("2006-01-02 15:04 UTC")},
		{"command", "`" + commandLine() + "`"},
		{"processor", fmt.Sprintf("%s, %d cores", processor(), runtime.NumCPU())},
		{"memory", fmt.Sprintf("%d MiB", memory["MemTotal"]/1024)},
		{"kernel", unix.ByteSliceToString(uts.Sysname[:]) + " " + unix.ByteSliceToString(uts.Release[:])},
		{"file system of the locks", fileSystem(b.dir)},
		{"fdatasync there", syncTime(b.dir)},
		{"load before the start", strings.Join(strings.Fields(string(load))[:3], " ")},
	}
	for _, name := range []string{"golock", "flock", "setlock", "s6-setlock", "chpst -l", "sem", "timeout", "tini", "dumb-init"} {
		rows = append(rows, []string{name, b.tools[name].version})
	}
	for _, name := range []string{"redis-server", "poll", "etcd", "etcdctl", "mariadbd", "getlock", "postgres", "advisory"} {
		if t := b.tools[name]; t != nil {
			rows = append(rows, []string{t.name, t.version})
		}
	}
	rows = append(rows, []string{"the command under the lock", b.stamp.built})
	return section{title: "Machine", head: []string{"", ""}, rows: rows}
}

// syncTime is what it takes to have the disk keep half a kilobyte: what every
// commit waits for.
func syncTime(dir string) string {
	file, err := os.CreateTemp(dir, "sync-")
	if err != nil {
		return "unknown"
	}
	defer os.Remove(file.Name())
	defer file.Close()
	const size, times = 512, 100
	_, _ = file.Write(make([]byte, size*times)) // so that the file does not grow later
	_ = file.Sync()
	var sample []float64
	for i := range times {
		if _, err := file.WriteAt(make([]byte, size), int64(i*size)); err != nil {
			return "unknown"
		}
		begun := now()
		if err := unix.Fdatasync(int(file.Fd())); err != nil {
			return "unknown"
		}
		sample = append(sample, now()-begun)
	}
	return fmt.Sprintf("median %s ms, p90 %s ms", ms(median(sample)), ms(quantile(sample, 0.9)))
}

func processor() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func fileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
		unix.BTRFS_SUPER_MAGIC: "btrfs", unix.XFS_SUPER_MAGIC: "xfs",
	}
	if name, known := names[int64(st.Type)]; known {
		return name
	}
	return fmt.Sprintf("type %#x", st.Type)
}
