// The lock that MySQL and MariaDB have built in, held as long as a command
// runs. It belongs to the session: nobody stops the command when that ends.
//
//	getlock [-poll] DSN NAME COMMAND [ARG...]
//
// With -poll it does not let the server wait, but asks every 100 ms.
package main

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"time"

	_ "github.com/go-sql-driver/mysql"
)

const year = 365 * 24 * 60 * 60

func main() {
	args, wait := os.Args[1:], year
	if args[0] == "-poll" {
		args, wait = args[1:], 0
	}
	dsn, name, command := args[0], args[1], args[2:]
	ctx := context.Background()
	db, err := sql.Open("mysql", dsn+"?interpolateParams=true")
	if err != nil {
		os.Exit(64)
	}
	session, err := db.Conn(ctx)
	if err != nil {
		os.Exit(69)
	}
	var got sql.NullInt64
	for {
		if err := session.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, wait).Scan(&got); err != nil {
			os.Exit(69)
		}
		if got.Int64 == 1 {
			break
		}
		if wait == year {
			os.Exit(69)
		}
		time.Sleep(100 * time.Millisecond)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run()
	if err := session.QueryRowContext(ctx, "SELECT RELEASE_LOCK(?)", name).Scan(&got); err != nil || got.Int64 != 1 {
		os.Exit(69)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}
