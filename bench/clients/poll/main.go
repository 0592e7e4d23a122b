// A lock on Redis as it is made at home: SET NX with an expiry, again every
// 100 ms until it is taken, and a script that deletes the key if it is still
// one's own. go-redis is as it comes. There is no heartbeat and no order.
//
//	poll HOST:PORT KEY COMMAND [ARG...]
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	interval = 100 * time.Millisecond
	expiry   = time.Minute
)

var remove = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

func main() {
	address, key, command := os.Args[1], os.Args[2], os.Args[3:]
	ctx, id := context.Background(), rand.Text()
	client := redis.NewClient(&redis.Options{Addr: address})
	for {
		err := client.Do(ctx, "SET", key, id, "NX", "PX", expiry.Milliseconds()).Err()
		if err == nil {
			break
		}
		if !errors.Is(err, redis.Nil) {
			os.Exit(69)
		}
		time.Sleep(interval)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run()
	if remove.Run(ctx, client, []string{key}, id).Err() != nil {
		os.Exit(69)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}
