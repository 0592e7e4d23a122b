package redis

import (
	"context"

	goredis "github.com/redis/go-redis/v9"
)

// noGreeting is a hook of the library that drops HELLO, which the library sends before the first
// command of each connection. Without a login HELLO only asks for RESP2, which a server speaks anyway:
// https://redis.io/docs/latest/commands/hello/
//
// Without HELLO the first answer comes one round trip earlier. A server that wants a login says so in its
// answer to the first command.
type noGreeting struct{}

// DialHook implements goredis.Hook.
func (noGreeting) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements goredis.Hook.
func (noGreeting) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if cmd.Name() == "hello" {
			return nil
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements goredis.Hook.
func (noGreeting) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// skipGreeting makes a client without a login send no HELLO. Sentinels still get HELLO, because the library
// speaks RESP3 with them.
func skipGreeting(client goredis.UniversalClient, o *goredis.UniversalOptions) {
	if o.Password != "" {
		return
	}
	nodes, isCluster := client.(*goredis.ClusterClient)
	if !isCluster {
		client.AddHook(noGreeting{})
		return
	}
	nodes.OnNewNode(func(node *goredis.Client) { node.AddHook(noGreeting{}) })
}
