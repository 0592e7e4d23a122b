// The lock that PostgreSQL has built in, held as long as a command runs. It
// belongs to the session: nobody stops the command when that ends.
//
//	advisory URL NAME COMMAND [ARG...]
package main

import (
	"context"
	"os"
	"os/exec"

	"github.com/jackc/pgx/v5/pgconn"
)

func main() {
	url, name, command := os.Args[1], os.Args[2], os.Args[3:]
	ctx := context.Background()
	session, err := pgconn.Connect(ctx, url)
	if err != nil {
		os.Exit(69)
	}
	ask := func(statement string) {
		if session.ExecParams(ctx, statement, [][]byte{[]byte(name)}, nil, nil, nil).Read().Err != nil {
			os.Exit(69)
		}
	}
	ask("SELECT pg_advisory_lock(hashtextextended($1, 0))")
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run()
	ask("SELECT pg_advisory_unlock(hashtextextended($1, 0))")
	os.Exit(cmd.ProcessState.ExitCode())
}
