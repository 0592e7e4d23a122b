package sql

import (
	"fmt"
	"slices"
	"strings"
)

func (t *step) write(format string, args ...any) {
	t.writes = append(t.writes, fmt.Sprintf(format, args...))
}

func (t *step) drop(id string) {
	t.write("DELETE FROM %s WHERE lock_key='%s' AND entry_id='%s'", t.store.table, t.q.key, id)
}

// save writes the caller's row.
func (t *step) save(r *row) {
	r.id = t.q.mine.id
	fields, err := r.fields()
	if err != nil {
		t.err = err
		return
	}
	if t.v.own == nil {
		t.write("INSERT INTO %s (lock_key,%s) VALUES ('%s',%s)", t.store.table, columns, t.q.key, strings.Join(fields, ","))
		return
	}
	var b strings.Builder
	for i, name := range strings.Split(columns, ",") {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name + "=" + fields[i])
	}
	t.write("UPDATE %s SET %s WHERE lock_key='%s' AND entry_id='%s'", t.store.table, b.String(), t.q.key, r.id)
}

// forget takes the caller's entry out and remembers that it has gone.
func (t *step) forget(evictedBy string) {
	t.holders = slices.DeleteFunc(t.holders, func(r row) bool { return r.id == t.q.mine.id })
	t.queue = slices.DeleteFunc(t.queue, func(r row) bool { return r.id == t.q.mine.id })
	t.saveGone(&row{evicted: evictedBy})
	if t.name.counter%tidyEvery == 0 {
		t.write("DELETE FROM %s WHERE lock_key='%s' AND state='G' AND place<%d", t.store.table, t.q.key, t.v.now-micros(remember))
	}
}

func (t *step) saveGone(r *row) {
	r.state, r.claim.Weight, r.goneAt = gone, 1, t.v.now
	t.save(r)
}

// finish is the text that writes the step and ends its transaction. What only
// locked, and will not matter to anybody, need not reach the disk.
func (t *step) finish() string {
	if t.nameChanged {
		t.write("UPDATE %s SET epoch='%s',server='%s',quiet=%d,ticket=%d,pace=%d,granted=%d WHERE lock_key='%s' AND entry_id=''",
			t.store.table, t.name.epoch, t.name.server, t.name.quiet, t.name.counter, t.name.interval, t.name.granted, t.q.key)
	}
	if len(t.writes) == 0 {
		return "ROLLBACK"
	}
	return strings.Join(t.writes, ";") + ";" + t.store.dialect.Commit(t.lasting)
}
