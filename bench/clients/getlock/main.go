// The lock that MySQL and MariaDB have built in, held as long as a command
// runs. It belongs to the session: nobody stops the command when that ends.
//
//	getlock DSN NAME COMMAND [ARG...]
package main

import (
	"context"
	"database/sql"
	"os"
	"os/exec"

	_ "github.com/go-sql-driver/mysql"
)

func main() {
	dsn, name, command := os.Args[1], os.Args[2], os.Args[3:]
	ctx := context.Background()
	db, err := sql.Open("mysql", dsn+"?interpolateParams=true")
	if err != nil {
		os.Exit(64)
	}
	session, err := db.Conn(ctx)
	if err != nil {
		os.Exit(69)
	}
	ask := func(statement string) {
		var got sql.NullInt64
		if session.QueryRowContext(ctx, statement, name).Scan(&got) != nil || got.Int64 != 1 {
			os.Exit(69)
		}
	}
	ask("SELECT GET_LOCK(?, 31536000)")
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run()
	ask("SELECT RELEASE_LOCK(?)")
	os.Exit(cmd.ProcessState.ExitCode())
}
