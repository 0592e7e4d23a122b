package main

import (
	"math"

	"golock/config"
	"golock/locks"
)

// naming gives the lock's name and its key. On a plain store the URL is the
// lock: its key is the same whatever the name, and without a name it is called
// by its URL.
func naming(v *config.Values, store locks.Store) (string, locks.Key, error) {
	name := v.Text(config.NameKey, "")
	_, given := v.Given(config.NameKey)
	_, plain := store.(locks.Plain)
	if !given && !plain {
		return "", locks.Key{}, usageError{errMissingName}
	}
	if given {
		if err := locks.CheckName(name); err != nil {
			return "", locks.Key{}, v.Errorf(config.NameKey, "%v", err)
		}
	}
	switch {
	case !plain:
		return name, locks.KeyOf(name), nil
	case !given:
		name = store.URL()
	}
	return name, locks.KeyOf(store.URL()), nil
}

func lacksOf(store locks.Store) locks.Lacks {
	if plain, ok := store.(locks.Plain); ok {
		return plain.Lacks()
	}
	return locks.Lacks{}
}

// countable reads a number of units, of at most most. If the store lacks it for
// a reason, there is only 1.
func countable(v *config.Values, key string, most int, reason string, out *printer) (int, error) {
	if reason == "" {
		return v.Int(key, 1, 1, most)
	}
	n, err := v.Int(key, 1, 1, math.MaxInt32)
	if err == nil && n > 1 {
		_, err = usable(v, key, false, notHere(reason), out)
	}
	return 1, err
}

func notHere(reason string) string { return "not on this store: " + reason }
