package locks

import (
	"fmt"
	"strconv"
	"strings"
)

// FormatSlots writes ascending slot numbers as "0,3-5". Without any it returns "".
func FormatSlots(slots []int) string {
	var b strings.Builder
	for i := 0; i < len(slots); {
		j := i
		for j+1 < len(slots) && slots[j+1] == slots[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(slots[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(slots[j]))
		}
		i = j + 1
	}
	return b.String()
}

// ParseSlots reads what FormatSlots wrote. More slots than most, and numbers above maxSlot, are an
// error: a short text that somebody else wrote must not fill the memory.
func ParseSlots(text string, most int) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	var slots []int
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(last)
		}
		if err != nil || from < 0 || to < from || to > maxSlot || to-from >= most-len(slots) {
			return nil, fmt.Errorf("slots %q", Printable(text, 40))
		}
		for i := range to - from + 1 { // to may be the largest integer
			slots = append(slots, from+i)
		}
	}
	return slots, nil
}
