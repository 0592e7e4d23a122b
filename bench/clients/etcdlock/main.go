// The lock that etcd has built in, over its JSON gateway: a lease, and the call Lock, which waits. Nobody prolongs
// the lease, and nobody stops the command when it ends.
//
//	etcdlock http://HOST:PORT NAME COMMAND [ARG...]
package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
)

func main() {
	url, name, command := os.Args[1], os.Args[2], os.Args[3:]
	// ask makes a call. The gateway writes numbers of 64 bits as strings, and bytes in base64 as []byte.
	ask := func(method string, request, answer any) {
		body, err := json.Marshal(request)
		if err != nil {
			os.Exit(70)
		}
		r, err := http.Post(url+"/v3/"+method, "application/json", bytes.NewReader(body))
		if err != nil {
			os.Exit(69)
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK || json.NewDecoder(r.Body).Decode(answer) != nil {
			os.Exit(69)
		}
	}
	var lease struct{ ID string }
	var lock struct{ Key []byte }
	ask("lease/grant", map[string]any{"TTL": 60}, &lease)
	ask("lock/lock", map[string]any{"name": []byte(name), "lease": lease.ID}, &lock)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run()
	ask("lease/revoke", map[string]any{"ID": lease.ID}, &struct{}{})
	os.Exit(cmd.ProcessState.ExitCode())
}
