// Package spelling finds the word that somebody has misspelt.
package spelling

// Nearest returns the candidate that differs least from a word, or "" if no candidate is similar.
// Candidates may differ in two letters, for short words in fewer than half of the letters.
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

// longWord is the length from which on a word that differs in one letter is likely a misspelling.
// Shorter words have too many neighbours: PORT and HOST are no misspellings of NOTE and HOLD.
const longWord = 5

// IsMisspelling reports whether a word is likely a misspelling of another one: a single letter is wrong,
// missing, extra or swapped with its neighbour. If the other one has fewer than longWord letters, only
// a doubled letter and two swapped ones count.
func IsMisspelling(word, of string) bool {
	if word == of {
		return false
	}
	if len(of) >= longWord {
		return within(1, word, of)
	}
	for i := range len(of) {
		withDoubledLetter := of[:i+1] + of[i:]
		if word == withDoubledLetter {
			return true
		}
		if i+1 == len(of) {
			continue
		}
		withSwappedLetters := of[:i] + of[i+1:i+2] + of[i:i+1] + of[i+2:]
		if word == withSwappedLetters {
			return true
		}
	}
	return false
}

// within reports whether at most n edits turn a into b. An edit inserts, deletes or replaces a
// letter, or swaps two neighbours (Damerau-Levenshtein distance).
func within(n int, a, b string) bool {
	switch {
	case n < 0:
		return false
	case a == "" || b == "":
		return len(a)+len(b) <= n
	case a[0] == b[0]:
		return within(n, a[1:], b[1:])
	}
	if within(n-1, a[1:], b) || within(n-1, a, b[1:]) || within(n-1, a[1:], b[1:]) {
		return true
	}
	isSwapped := len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0]
	return isSwapped && within(n-1, a[2:], b[2:])
}
