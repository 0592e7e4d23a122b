package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// jsonValues FILE [PATH VALUE]... demands that FILE (or stdout, stderr) is JSON: one array, or one object after the
// other, and that the value at each PATH (0.slots) is VALUE. The path len is the number of elements.
func jsonValues(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args)%2 != 1 {
		ts.Fatalf("usage: json FILE [PATH VALUE]...")
	}
	all := []any{}
	for dec := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0]))); ; {
		dec.UseNumber()
		var v any
		err := dec.Decode(&v)
		if errors.Is(err, io.EOF) {
			break
		}
		ts.Check(err)
		if list, ok := v.([]any); ok {
			all = append(all, list...)
		} else {
			all = append(all, v)
		}
	}
	for args = args[1:]; len(args) > 0; args = args[2:] {
		if got := jsonAt(all, args[0]); got != args[1] {
			ts.Fatalf("%s is %s, want %s", args[0], got, args[1])
		}
	}
}

// jsonAt is the text of the value at path, "nothing" if there is none.
func jsonAt(all []any, path string) string {
	var v any = all
	if path == "len" {
		return strconv.Itoa(len(all))
	}
	for word := range strings.SplitSeq(path, ".") {
		list, _ := v.([]any)
		object, _ := v.(map[string]any)
		found := false
		if i, err := strconv.Atoi(word); err == nil && i < len(list) {
			v, found = list[i], true
		} else {
			v, found = object[word]
		}
		if !found {
			return "nothing"
		}
	}
	if text, ok := v.(string); ok {
		return text
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}
