package pictures

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the pictures")

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Every picture is what is drawn today, of the figures and the session of today, and is XML.
func TestPicturesAreCurrent(t *testing.T) {
	start, handOff, err := Charts(read(t, "../benchmarks.json"))
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]string{
		"session.svg":  Session(string(read(t, "session.txt"))),
		"lease.svg":    Lease(),
		"hold.svg":     Hold(),
		"choosing.svg": Choosing(),
		"start.svg":    start,
		"handoff.svg":  handOff,
	}
	for name, picture := range drawn {
		if *update {
			err := os.WriteFile(name, []byte(picture), 0o644)
			if err != nil {
				t.Fatal(err)
			}
		}
		if string(read(t, name)) != picture {
			t.Errorf("%s is not current: go test ./docs/pictures -update", name)
		}
		checkXML(t, name, picture)
	}
}

// checkXML demands well-formed XML with a title and text.
func checkXML(t *testing.T, name, picture string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
	}
	if !strings.Contains(picture, "<title>") || strings.Count(picture, "<text") < 5 {
		t.Errorf("%s has no title, or no text", name)
	}
}
