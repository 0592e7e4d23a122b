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

const year = 365 * 24 * 60 * 60

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
	var got sql.NullInt64
	if err := session.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, year).Scan(&got); err != nil || got.Int64 != 1 {
		os.Exit(69)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run()
	if err := session.QueryRowContext(ctx, "SELECT RELEASE_LOCK(?)", name).Scan(&got); err != nil || got.Int64 != 1 {
		os.Exit(69)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}
