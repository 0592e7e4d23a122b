package locks

import (
	"slices"
	"testing"
)

func TestSlotsAsText(t *testing.T) {
	for _, test := range []struct {
		text  string
		slots []int
	}{
		{"", nil},
		{"0", []int{0}},
		{"0-1", []int{0, 1}},
		{"0,3-5,9", []int{0, 3, 4, 5, 9}},
		{"7-10", []int{7, 8, 9, 10}},
	} {
		if got := FormatSlots(test.slots); got != test.text {
			t.Errorf("%v is written %q, want %q", test.slots, got, test.text)
		}
		if got, err := ParseSlots(test.text, 5); err != nil || !slices.Equal(got, test.slots) {
			t.Errorf("%q is read as %v, %v, want %v", test.text, got, err, test.slots)
		}
	}
	for _, text := range []string{"-", "-1", "a", "1,", ",1", "1-", "2-1", "1--2", " 1", "0-5", "0-2,4-6", "0-9223372036854775807", "9223372036854775807", "1-9223372036854775807", "2147483648", "9223372036854775807-9223372036854775807", "99999999999999999999"} {
		if got, err := ParseSlots(text, 5); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
