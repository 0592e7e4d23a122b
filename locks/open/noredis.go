//go:build noredis

package open

// redisEngines has none: with the tag noredis the client is not linked. The
// benchmarks measure what it costs a run that does not use it.
func redisEngines() []engine { return nil }
