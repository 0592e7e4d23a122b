//go:build !linux || !(amd64 || arm64) || portable

package signals

// os/signal keeps one of each kind.
const merges = true
