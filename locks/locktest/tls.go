package locktest

import (
	"testing"

	"golock/locks"
)

// TLS tests a store at a server on 127.0.0.1. The server has a self-signed certificate for the given name, and
// wants the same certificate from clients. address returns the URL with options.
func TLS(t *testing.T, name, cert, key string, open func(url string) (locks.Store, error), address func(options ...string) string) {
	t.Helper()
	store := func(options ...string) locks.Store {
		s, err := open(address(options...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	Release(t, Acquire(t, store("ca="+cert, "server-name="+name, "cert="+cert, "key="+key), "n"))
	for _, tt := range []struct {
		options []string
		want    string
	}{
		{nil, "?ca=FILE"},
		{[]string{"ca=" + cert}, "127.0.0.1"},
		{[]string{"ca=" + cert, "server-name=other.example"}, "other.example"},
	} {
		ExpectError(t, ExpectFinalError(t, store(tt.options...), "n"), tt.want)
	}
	// The server refuses a client without a certificate. The reason may be lost with the connection.
	ExpectJoinError(t, store("ca="+cert, "server-name="+name), "n")
}
