//go:build !linux

package procfs

// A build for another system stops here, with this name in the message.
const _ = golock_runs_on_Linux_only
