//go:build !noredis

package open

import (
	"golock/locks"
	"golock/locks/redis"
)

func redisEngines() []engine {
	return []engine{
		{scheme: "redis", aliases: []string{"valkey"}, open: openRedis},
		{scheme: "rediss", aliases: []string{"valkeys"}, open: openRedis},
		{scheme: "redis+unix", aliases: []string{"unix"}, open: openRedis},
		{scheme: "redis+sentinel", aliases: []string{"redis-sentinel"}, open: openRedis},
		{scheme: "rediss+sentinel", aliases: []string{"rediss-sentinel"}, open: openRedis},
		{scheme: "redis+cluster", open: openRedis},
		{scheme: "rediss+cluster", open: openRedis},
	}
}

func openRedis(address string) (locks.Store, error) {
	s, err := redis.Open(address)
	if err != nil {
		return nil, err
	}
	return s, nil
}
