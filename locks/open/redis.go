//go:build !noredis

package open

import (
	"golock/locks"
	"golock/locks/redis"
)

func redisEngines() []engine {
	return []engine{
		{scheme: "redis", form: "redis://HOST/DB", open: openRedis},
		{scheme: "rediss", form: "rediss://HOST/DB", open: openRedis},
		{scheme: "redis+unix", form: "redis+unix:///SOCKET", open: openRedis},
		{scheme: "redis+sentinel", form: "redis+sentinel://HOSTS/MASTER/DB", open: openRedis},
		{scheme: "rediss+sentinel", form: "rediss+sentinel://HOSTS/MASTER/DB", open: openRedis},
		{scheme: "redis+cluster", form: "redis+cluster://HOSTS", open: openRedis},
		{scheme: "rediss+cluster", form: "rediss+cluster://HOSTS", open: openRedis},
	}
}

func openRedis(address string) (locks.Store, error) {
	s, err := redis.Open(address)
	if err != nil {
		return nil, err
	}
	return s, nil
}
