package testkit

import "os"

// Deep reports whether tests try all combinations that they know (LOCKTEST_DEPTH, make test-deep), which
// takes many times as long as the choice of make test.
func Deep() bool { return os.Getenv("LOCKTEST_DEPTH") != "" }

// Rounds is how often a test repeats what depends on chance: a few times, or more often in a deep run.
func Rounds(few, deep int) int {
	if Deep() {
		return deep
	}
	return few
}

// Spread returns n elements of a list, with its first and its last one. A deep run gets all elements.
func Spread[T any](list []T, n int) []T {
	if Deep() || n >= len(list) {
		return list
	}
	some := make([]T, n)
	for i := range some {
		some[i] = list[i*(len(list)-1)/max(n-1, 1)]
	}
	return some
}

// Covers selects combinations of two lists, of which n is the length of the shorter one: it reports
// whether to try element i of one with element j of the other. Each element of both lists is tried. A
// deep run tries all combinations.
func Covers(i, j, n int) bool { return Deep() || i%n == j%n }
