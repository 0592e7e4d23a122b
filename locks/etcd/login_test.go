//go:build integration

package etcd_test

import (
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/etcd/etcdtest"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// addUser gives a cluster a user anna whose role has the keys of one prefix, and switches
// authentication on.
func addUser(t *testing.T, s *etcdtest.Server, prefix string) {
	t.Helper()
	for _, line := range []string{
		"user add root:s3cret", "user grant-role root root", "role add locks",
		"role grant-permission locks readwrite --prefix=true " + prefix + "/", "user add anna:s3cret",
		"user grant-role anna locks", "auth enable",
	} {
		s.Control(strings.Fields(line)...)
	}
}

// refusedBy demands that nobody gets a slot, and why.
func refusedBy(t *testing.T, url string, says ...string) {
	t.Helper()
	_, err := open(t, url).Join(background, locktest.NewRequest(t, "n"))
	if err == nil {
		t.Errorf("%s lets in", url)
		return
	}
	for _, want := range says {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want something with %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v shows the password", err)
	}
}

// A user needs the keys of the prefix and nothing else: golock does all with it, and doctor too. Who
// has no rights is told which.
func TestRights(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	version := locks.OK
	if server.RevokesLate() {
		version = locks.Note
	}
	address := server.Addr()
	early := open(t, "etcd://anna:s3cret@"+address+"/locks") // it gets no token, because authentication is off
	earlyHolder := locktest.AcquireAtOnce(t, early, "early")
	earlyWaiter := locktest.Enqueue(t, early, "early")
	addUser(t, server, "locks")
	locktest.Release(t, earlyHolder)
	locktest.Release(t, earlyWaiter.ExpectGrant())
	s := open(t, "etcd://anna:s3cret@"+address+"/locks")
	holder := locktest.AcquireAtOnce(t, s, "n")
	waiter := locktest.Enqueue(t, s, "n")
	locktest.Renew(t, holder)
	locktest.ExpectEntries(t, s, "n", locktest.Counts{Holding: 1, Waiting: 1})
	evicted := locktest.Enqueue(t, s, "n")
	testkit.Must(t, s.Evict(background, []locks.Ref{evicted.Ref}, "me")[0])
	found := locktest.Examine(t, s, "s3cret")
	locktest.ExpectFinding(t, found, "test lock", locks.OK)
	locktest.ExpectFinding(t, found, "rights", locks.OK)
	locktest.ExpectFinding(t, found, "version", version, "etcd 3.")
	locktest.Release(t, holder)
	locktest.Release(t, waiter.ExpectGrant())
	testkit.Must(t, s.Forget(background, "n"))

	refusedBy(t, "etcd://anna:s3cret@"+address, "permission denied", "--prefix=true golock/")
	refusedBy(t, "etcd://anna:s3cretX@"+address, `user "anna"`, "USER:PASSWORD@HOST")
	refusedBy(t, "etcd://"+address, "wants a login")
}

// Over TLS the certificate of the server is verified, and that of the client is its login.
func TestTLS(t *testing.T) {
	t.Parallel()
	server, cert, key := etcdtest.StartTLS(t, "anna")
	url := "etcds://" + server.Addr() + "?server-name=anna&ca=" + cert + "&cert=" + cert + "&key=" + key
	s := open(t, url)
	locktest.Release(t, locktest.AcquireAtOnce(t, s, "n"))
	refusedBy(t, "etcds://"+server.Addr()+"?cert="+cert+"&key="+key, "?ca=FILE")
	refusedBy(t, "etcds://"+server.Addr()+"?ca="+cert+"&cert="+cert+"&key="+key, "server-name")
	addUser(t, server, "golock")
	locktest.Release(t, locktest.AcquireAtOnce(t, open(t, url), "n"))
	refusedBy(t, strings.Replace(url, "?", "/other?", 1), "permission denied")
}

// doctor asks all hosts of the URL: one is away, one belongs to another cluster.
func TestExamineHosts(t *testing.T) {
	t.Parallel()
	one, other, away := etcdtest.Start(t), etcdtest.Shared(t), etcdtest.Start(t)
	away.Kill()
	s := open(t, "etcd://"+one.Addr()+","+other.Addr()+","+away.Addr())
	var said []string
	found, err := s.Examine(background, locktest.LongTTL)
	testkit.Must(t, err)
	for _, f := range found {
		if f.Subject == "hosts" {
			said = append(said, string(f.Level)+": "+f.What)
		}
	}
	text := strings.Join(said, "\n")
	for _, want := range []string{"problem: " + other.Addr() + " belongs to another cluster", "note: " + away.Addr() + " does not answer"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s, want %q", text, want)
		}
	}
}
