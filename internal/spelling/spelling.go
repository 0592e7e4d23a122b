// Package spelling finds the word that a misspelt one was meant to be.
package spelling

// Nearest gives the candidate that a word is a misspelling of; "": none. It may differ in two
// letters, in a short word in less than half.
func Nearest(word string, candidates []string) string {
	for n := range min(3, (len(word)+1)/2) {
		for _, c := range candidates {
			if within(n, word, c) {
				return c
			}
		}
	}
	return ""
}

// shortWord is the length from which on a word that differs in one letter is likely a misspelling.
// Shorter words have too many neighbours: PORT and HOST are no misspellings of NOTE and HOLD.
const shortWord = 5

// IsMisspelling reports whether a word is likely a misspelling of another one: a single letter is wrong,
// missing, extra or swapped with its neighbour. In a word of fewer than five letters only a doubled
// letter and two swapped ones count.
func IsMisspelling(word, of string) bool {
	if word == of {
		return false
	}
	if len(of) >= shortWord {
		return within(1, word, of)
	}
	for i := range len(of) {
		doubled := of[:i+1] + of[i:]
		if word == doubled {
			return true
		}
		if i+1 < len(of) && word == of[:i]+of[i+1:i+2]+of[i:i+1]+of[i+2:] {
			return true
		}
	}
	return false
}

// within reports whether n letters, inserted, deleted, replaced or swapped with their neighbour,
// turn one word into the other.
func within(n int, a, b string) bool {
	switch {
	case n < 0:
		return false
	case a == "" || b == "":
		return len(a)+len(b) <= n
	case a[0] == b[0]:
		return within(n, a[1:], b[1:])
	}
	swapped := len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0]
	return within(n-1, a[1:], b) || within(n-1, a, b[1:]) || within(n-1, a[1:], b[1:]) || swapped && within(n-1, a[2:], b[2:])
}
