package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// sqlLink compares runs that do not use a database of golocks that are built
// with and without the clients of databases.
func (b *bench) sqlLink() error {
	srv, err := b.startServer()
	if err != nil {
		return err
	}
	defer srv.stop()
	stores := []struct {
		name string
		url  func(lock) string
	}{{"local", localStore}, {"redis", srv.url}}
	variants := []struct{ name, tags string }{
		{"without both", "nomysql,nopostgres"}, {"with MySQL's", "nopostgres"}, {"with PostgreSQL's", "nomysql"}, {"with both", ""},
	}
	rows := make([][]*starter, len(stores))
	var all []*starter
	for i, v := range variants {
		path := filepath.Join(b.dir, fmt.Sprintf("golock-sql-%d", i))
		if err := goBuild(path, ".", "-tags", v.tags); err != nil {
			return fmt.Errorf("building golock %s (run this from the module's root): %w", v.name, err)
		}
		for k, store := range stores {
			r := &starter{tool: golockTool("golock run, "+store.name+", "+v.name, path, store.url)}
			rows[k], all = append(rows[k], r), append(all, r)
			r.base = rows[k][0].name
		}
	}
	if err := b.startAll(b.plan.sql.link, all); err != nil {
		return err
	}
	s := section{
		title: "SQL, what linking the clients costs other runs",
		how:   "Start-up as above, on the local store and on Redis: the program as it is, beside those that were built with `-tags nomysql`, `nopostgres` or both.",
		head:  append(append([]string{}, startHead...), "beyond ms", "program MiB"),
	}
	for k, of := range rows {
		for _, r := range of {
			info, err := os.Stat(r.path)
			if err != nil {
				return err
			}
			b.noteRatio("sql-link", r.tool, r.wall, of[0].name, of[0].wall)
			s.rows = append(s.rows, append(r.cells(of[0]), ms(r.wall.beyond(of[0].wall)), mib(float64(info.Size())/1024)))
		}
		whole := of[len(of)-1]
		what := "sql: what linking both clients adds to a run, " + stores[k].name
		b.target(what, 0.3, 0, " ms", whole.wall.beyond(of[0].wall))
		b.target(what+", resident", 1.5, 0, " MiB", (whole.rss-of[0].rss)/1024)
	}
	b.sections = append(b.sections, s)
	return nil
}
