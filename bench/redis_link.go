package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// redisLink compares a local run of golock with one of a golock that is built
// without the Redis store.
func (b *bench) redisLink() error {
	var rows []*starter
	const without = "golock without go-redis"
	for _, v := range []struct{ name, file, tags string }{{without, "golock-noredis", "noredis"}, {"golock", "golock-redis", ""}} {
		path := filepath.Join(b.dir, v.file)
		if err := goBuild(path, ".", "-tags", v.tags); err != nil {
			return fmt.Errorf("building %s (run this from the module's root): %w", v.name, err)
		}
		rows = append(rows, &starter{tool: golockTool(v.name, path, localStore), base: without})
	}
	if err := b.startAll(b.plan.redis.link, rows); err != nil {
		return err
	}
	s := section{
		title: "Redis, what linking it costs a local run",
		how:   "Start-up as above, on the local store: the program as it is, beside one that was built with `-tags noredis`.",
		head:  append([]string{}, startHead...),
	}
	s.head = append(s.head, "beyond ms", "program MiB")
	for _, r := range rows {
		info, err := os.Stat(r.path)
		if err != nil {
			return err
		}
		b.noteRatio("redis-link", r.tool, r.wall, rows[0].name, rows[0].wall)
		s.rows = append(s.rows, append(r.cells(rows[0]), ms(r.wall.beyond(rows[0].wall)), mib(float64(info.Size())/1024)))
	}
	b.sections = append(b.sections, s)
	b.target("redis: what linking it adds to a local run", 0.5, 0, " ms", rows[1].wall.beyond(rows[0].wall))
	return nil
}
