//go:build linux && (amd64 || arm64) && !portable

package signals

const merges = false
