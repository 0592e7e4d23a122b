package held

import "testing"

// What a run on a networked store pays for being there to ask.
func BenchmarkListen(b *testing.B) {
	dir := directory(b)
	for b.Loop() {
		l, err := Listen(dir, id, func(Question) (Answer, error) { return Yes, nil })
		if err != nil {
			b.Fatal(err)
		}
		l.Close()
	}
}
