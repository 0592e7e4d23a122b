package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/net/http2/hpack"

	"golock/locks"
	"golock/locks/network"
)

// These are names of headers that end a gRPC call.
const (
	statusHeader  = "grpc-status"
	messageHeader = "grpc-message"
)

// messageHead is the number of bytes before a message: one says whether the message is compressed, four its
// size.
const messageHead = 5

// status is an error that a server answers.
type status struct {
	code int // https://grpc.github.io/grpc/core/md_doc_statuscodes.html
	text string
}

func (s *status) Error() string { return locks.Printable(s.text, 300) }

// statusOf returns the error in the headers that end a call, or nil.
func statusOf(headers map[string]string) error {
	text, ok := headers[statusHeader]
	switch headers[":status"] {
	case "429", "502", "503", "504": // a proxy whose members are away (https://grpc.github.io/grpc/core/md_doc_http-grpc-status-mapping.html)
		if !ok {
			return &status{code: codeUnavailable, text: "HTTP status " + headers[":status"]}
		}
	}
	if !ok {
		return fmt.Errorf("%w: it answers HTTP status %s", errNoHTTP2, locks.Printable(headers[":status"], 10))
	}
	code, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return network.Damaged("status %q", locks.Printable(text, 20))
	case code == 0:
		return nil
	}
	message, err := url.PathUnescape(headers[messageHeader])
	if err != nil {
		message = headers[messageHeader]
	}
	return &status{code: code, text: message}
}

// frameMessage puts the head before a message.
func frameMessage(m message) []byte {
	b := make([]byte, messageHead, messageHead+len(m))
	binary.BigEndian.PutUint32(b[1:], uint32(len(m)))
	return append(b, m...)
}

// These are the values of the parameter isLast.
const (
	lastMessage = true
	moreFollow  = false
)

// begin begins a call. isLast says that no other message follows in the call.
func (l *link) begin(method string, m message, isLast bool) (*stream, error) {
	return l.beginFramed(method, frameMessage(m), isLast)
}

// beginFramed is like begin, but sends any number of messages, each with its head.
func (l *link) beginFramed(method string, framed []byte, isLast bool) (*stream, error) {
	scheme := "http"
	if l.client.target.TLS {
		scheme = "https"
	}
	headers := []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: scheme},
		{Name: ":path", Value: "/etcdserverpb." + method}, {Name: ":authority", Value: l.host},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
		// A member that has no leader says so at once.
		{Name: "hasleader", Value: "true"},
	}
	if l.token != "" {
		headers = append(headers, hpack.HeaderField{Name: "token", Value: l.token, Sensitive: true})
	}
	return l.open(headers, framed, isLast)
}

// unary makes a call with one request and one answer.
func (l *link) unary(ctx context.Context, method string, m message) ([]byte, error) {
	sent := locks.BootTime()
	s, err := l.begin(method, m, lastMessage)
	if err != nil {
		return nil, err
	}
	defer s.close()
	var answer []byte
	for {
		got, ended, err := s.receive(ctx)
		switch {
		case err != nil:
			return nil, err
		case ended && answer == nil:
			return nil, network.Damaged("no message")
		case ended:
			l.client.target.Trips.Note(locks.BootTime().Sub(sent))
			return answer, nil
		case answer != nil:
			return nil, network.Damaged("two messages")
		}
		answer = got
	}
}

// silence is how long a server that owes an answer may send nothing at all, if there is another one to ask.
// After half of that time the client sends it a ping. The client leaves the only server when the attempt is
// over: if a crowd of clients connected anew each second, that server would answer nobody.
const silence = time.Second

var errSilent = errors.New("the server has gone silent")

// receive waits for the next message, or for the end of the call without an error.
func (s *stream) receive(ctx context.Context) (message []byte, ended bool, err error) {
	waitsFrom := locks.BootTime()
	timer := time.NewTimer(s.silence / 2)
	defer timer.Stop()
	pinged := false
	for {
		message, headers, err := s.next()
		switch {
		case message != nil:
			return message, false, nil
		case headers != nil:
			return nil, true, statusOf(headers)
		case err != nil:
			return nil, false, err
		}
		select {
		case <-s.notify:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case <-timer.C:
			switch {
			case s.lastHeard() > waitsFrom:
				waitsFrom, pinged = locks.BootTime(), false
			case pinged:
				s.fail(errSilent)
			default:
				pinged = s.ping()
			}
			timer.Reset(s.silence / 2)
		}
	}
}

// await waits for the next message of a stream on which the server may send nothing for hours.
func (s *stream) await(ctx context.Context) (message []byte, err error) {
	for {
		message, headers, err := s.next()
		switch {
		case message != nil:
			return message, nil
		case headers != nil:
			if err := statusOf(headers); err != nil {
				return nil, err
			}
			return nil, io.EOF
		case err != nil:
			return nil, err
		}
		select {
		case <-s.notify:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
