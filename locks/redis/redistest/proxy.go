package redistest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// Verdict says what the proxy does with a request.
type Verdict = server.Verdict

// The verdicts.
const (
	Pass      = server.Pass
	LoseReply = server.LoseReply
	Lose      = server.Lose
	Hang      = server.Hang
)

// Proxy stands between clients and a server and makes faults. Its judge gets the mode in which a request runs
// the script, or "" for any other request.
type Proxy struct {
	*server.Proxy
	t      testing.TB
	server string
}

// NewProxy starts a proxy before a server. It forwards everything until it gets a judge.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	return &Proxy{server.NewProxy(t, s.Addr(), func() server.Wire { return wire{} }), t, s.Addr()}
}

// URL returns the URL of a store without quarantine behind the proxy.
func (p *Proxy) URL() string { return "redis://" + p.Addr() + "?quarantine=0" }

// Replay sends all script runs that were ever seen to the server again, in their
// order, as a network that delivers late would. If modes are given, it sends only
// runs with one of them.
func (p *Proxy) Replay(modes ...string) {
	p.t.Helper()
	c, err := net.Dial("tcp", p.server)
	testkit.Must(p.t, err)
	defer c.Close()
	for _, r := range p.Requests() {
		if r.Request == "" || len(modes) > 0 && !slices.Contains(modes, r.Request) {
			continue
		}
		_, err := c.Write(r.Raw)
		testkit.Must(p.t, err)
	}
	// The server answers in order: after this they all have been run.
	_, err = c.Write([]byte("ECHO golock-replayed\r\n"))
	testkit.Must(p.t, err)
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		testkit.Must(p.t, err)
		if strings.Contains(line, "golock-replayed") {
			return
		}
	}
}

// wire reads the protocol of Redis (https://redis.io/docs/latest/develop/reference/protocol-spec/). Of a reply
// it knows only that it has come.
type wire struct{}

func (wire) Request(r *bufio.Reader) (server.Message, error) {
	raw, args, err := readRequest(r)
	return server.Message{Raw: raw, IsRequest: true, Request: mode(args)}, err
}

func (wire) Reply(r *bufio.Reader) (raw []byte, last bool, err error) {
	if _, err := r.Peek(1); err != nil {
		return nil, false, err
	}
	raw = make([]byte, r.Buffered())
	_, err = io.ReadFull(r, raw)
	return raw, true, err
}

// readRequest reads one command as clients send it: an array of strings.
func readRequest(r *bufio.Reader) (raw []byte, args []string, err error) {
	var b bytes.Buffer
	number := func(mark byte) (int, error) {
		line, err := r.ReadString('\n')
		b.WriteString(line)
		if err != nil || len(line) < 3 || line[0] != mark {
			return 0, fmt.Errorf("%q: %w", line, io.ErrUnexpectedEOF)
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number('*')
	for i := 0; i < n && err == nil; i++ {
		var size int
		if size, err = number('$'); err != nil {
			break
		}
		text := make([]byte, size+2)
		_, err = io.ReadFull(r, text)
		b.Write(text)
		args = append(args, string(text[:size]))
	}
	if err == nil && len(args) == 0 {
		err = io.ErrUnexpectedEOF
	}
	return b.Bytes(), args, err
}

// mode returns the mode in which a request runs the script, or "" if it runs none.
func mode(args []string) string {
	if len(args) < 3 || !strings.HasPrefix(strings.ToLower(args[0]), "eval") {
		return ""
	}
	keys, err := strconv.Atoi(args[2])
	if err != nil || len(args) <= 3+keys {
		return ""
	}
	var question struct{ Mode string }
	if json.Unmarshal([]byte(args[3+keys]), &question) != nil {
		return ""
	}
	return question.Mode
}
