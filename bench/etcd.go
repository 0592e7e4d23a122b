package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// etcdPlan says how much is measured beside etcdctl.
type etcdPlan struct {
	start   int // rounds of the start-up comparison
	single  int // hand-offs with one waiter
	queue   int // rounds of hand-offs with waiters
	waiters int
	burst   int // rounds
	jobs    int
	section int // ms that each of the jobs lasts
	idle    int // waiters that are watched
	settle  int // seconds before they are
	ttl     int // of theirs, in seconds; they are watched for two thirds of it
	memory  int // samples
}

// addEtcd looks for the server and its client.
func (b *bench) addEtcd() error {
	for _, name := range []string{"etcd", "etcdctl"} {
		path, err := exec.LookPath(name)
		if err != nil {
			return fmt.Errorf("%s is not installed: run .ci/deps bench", name)
		}
		if path, err = filepath.Abs(path); err != nil {
			return err
		}
		version := firstLine(path, "--version")
		if version == "" {
			version = firstLine(path, "version")
		}
		b.tools[name] = &tool{name: name, path: path, version: version}
	}
	return nil
}

// etcdNote explains the row of the tables.
const etcdNote = "etcdctl lock: etcd has everything on the disk before it answers, Redis is set to keep nothing; the waiters stand in order of " +
	"their revisions; no guard: when the lease is lost the next one starts beside the command"

// etcdServer is an etcd of one node on loopback, with a directory of its own.
type etcdServer struct {
	*process
	endpoint string
}

// startEtcd starts one on free ports and returns when it answers.
func (b *bench) startEtcd() (*etcdServer, error) {
	for range 10 {
		l, err := b.place("etcd")
		if err != nil {
			return nil, err
		}
		var urls []string
		for range 2 { // for clients, for other nodes
			port, err := freePort()
			if err != nil {
				return nil, err
			}
			urls = append(urls, "http://127.0.0.1:"+port)
		}
		p, err := b.start([]string{
			b.tools["etcd"].path, "--data-dir", filepath.Join(l.dir, "data"), "--name", "one", "--logger", "zap", "--log-level", "error",
			"--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
			"--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1], "--initial-cluster", "one=" + urls[1],
		})
		if err != nil {
			return nil, err
		}
		s := &etcdServer{process: p, endpoint: urls[0]}
		err = b.until("etcd answers", 5*time.Millisecond, func() (bool, error) {
			if p.gone() {
				return false, errors.New("etcd has ended")
			}
			_, err := s.keys("")
			return err == nil, nil
		})
		if err == nil {
			return s, nil
		}
		gone := p.gone() // somebody else was quicker at a port
		s.stop()
		if !gone {
			return nil, err
		}
	}
	return nil, errors.New("etcd does not start" + b.logTail())
}

func (s *etcdServer) stop() {
	s.end()
	_, _ = s.wait()
}

// tool is etcdctl lock on this server.
func (s *etcdServer) tool(b *bench, flags ...string) *tool {
	t := *b.tools["etcdctl"]
	t.name = strings.Join(append([]string{"etcdctl lock"}, flags...), " ")
	t.argv = func(l lock, command ...string) []string {
		argv := append([]string{t.path, "--endpoints", s.endpoint, "lock"}, flags...)
		return append(append(argv, l.name), command...)
	}
	t.waiting = func(l lock) (int, error) {
		n, err := s.keys(l.name + "/")
		return n - 1, err // the holder has one too
	}
	return &t
}

// keys counts those that begin with a prefix.
func (s *etcdServer) keys(prefix string) (int, error) {
	from, to := []byte{0}, []byte{0} // all there are
	if prefix != "" {
		from, to = []byte(prefix), []byte(prefix)
		to[len(to)-1]++
	}
	ask, err := json.Marshal(map[string]any{
		"key": base64.StdEncoding.EncodeToString(from), "range_end": base64.StdEncoding.EncodeToString(to), "count_only": true,
	})
	if err != nil {
		return 0, err
	}
	answer, err := http.Post(s.endpoint+"/v3/kv/range", "application/json", bytes.NewReader(ask))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var got struct {
		Count string `json:"count"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil || answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("etcd: %s %w", answer.Status, err)
	}
	if got.Count == "" {
		return 0, nil
	}
	return strconv.Atoi(got.Count)
}

// asked is how many requests and messages clients have sent to the server,
// those of open streams included.
func (s *etcdServer) asked() (int, error) {
	answer, err := http.Get(s.endpoint + "/metrics")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "grpc_server_msg_received_total{") {
			n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return int(sum), nil
}
