package sql

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/network"
)

// clientOption is one or more options of a server's own clients.
type clientOption struct {
	of    string // the first of the dialect's schemes
	names string
	set   func(t *Target, name, value string) error
}

func clientOptions() []clientOption {
	const postgres, mysql = "postgres", "mysql"
	as := func(own string) func(t *Target, _, value string) error {
		return func(t *Target, _, value string) error {
			_, err := t.Set(own, value)
			return err
		}
	}
	refused := func(why string) func(*Target, string, string) error {
		return func(_ *Target, name, _ string) error { return fmt.Errorf("option %s: %s", name, why) }
	}
	ignored := func(*Target, string, string) error { return nil }
	return []clientOption{
		{postgres, "sslmode", func(t *Target, name, value string) error {
			return t.setTLS(name, value, "disable", "verify-ca", "verify-full")
		}},
		{postgres, "sslrootcert", func(t *Target, name, value string) error {
			if value == "system" { // as without the option
				return nil
			}
			return as("ca")(t, name, value)
		}},
		{postgres, "sslcert", as("cert")},
		{postgres, "sslkey", as("key")},
		{postgres, "application_name", func(t *Target, name, value string) error { return network.Text(name, value, &t.Application) }},
		{postgres, "host", (*Target).setHost},
		{postgres, "target_session_attrs", func(_ *Target, name, value string) error {
			if !slices.Contains([]string{"any", "read-write", "primary"}, value) {
				return fmt.Errorf("option %s: want read-write: golock writes", name)
			}
			return nil
		}},
		{postgres, "options", refused("golock sets what its transactions need itself; for a schema write table=SCHEMA.golock")},
		{postgres, "fallback_application_name client_encoding keepalives keepalives_idle keepalives_interval keepalives_count tcp_user_timeout", ignored},

		{mysql, "ssl-mode", func(t *Target, name, value string) error {
			return t.setTLS(name, strings.ToUpper(value), "DISABLED", "VERIFY_CA", "VERIFY_IDENTITY")
		}},
		{mysql, "ssl-ca", as("ca")},
		{mysql, "ssl-cert", as("cert")},
		{mysql, "ssl-key", as("key")},
		{mysql, "timeout", func(t *Target, name, value string) error { return network.Timeout(name, value, &t.connectTimeout) }},
		{mysql, "readTimeout writeTimeout", func(_ *Target, name, value string) error { return network.Timeout(name, value, new(time.Duration)) }},
		{mysql, "allowCleartextPasswords allowFallbackToPlaintext allowOldPasswords", func(_ *Target, name, value string) error {
			if value != "false" {
				return fmt.Errorf("option %s: golock sends no password in the clear", name)
			}
			return nil
		}},
		{mysql, "parseTime charset collation loc allowNativePasswords checkConnLiveness clientFoundRows columnsWithAlias compress " +
			"connectionAttributes interpolateParams maxAllowedPacket multiStatements rejectReadOnly timeTruncate", ignored},
	}
}

// setTLS takes an option that says how much of a server's certificate is verified: off,
// its authority, or its name too. Each may have several words.
func (t *Target) setTLS(name, value, off, authority, full string) error {
	has := func(words string) bool { return slices.Contains(strings.Fields(words), value) }
	switch {
	case has(off):
		return t.SetTLS(name, false, false)
	case has(authority):
		return t.SetTLS(name, true, true)
	case has(full):
		return t.SetTLS(name, true, false)
	}
	first := func(words string) string { return strings.Fields(words)[0] }
	why := ""
	switch strings.ToLower(value) {
	case "require", "required", "prefer", "preferred", "allow", "skip-verify":
		why = "does not verify the server: "
	}
	return fmt.Errorf("option %s=%q: %swant %s, which verifies the server, %s, which does not look at its name, or %s",
		name, locks.Printable(value, 20), why, first(full), first(authority), first(off))
}

// setHost takes libpq's directory of sockets.
func (t *Target) setHost(name, value string) error {
	if !strings.HasPrefix(value, "/") {
		return errors.New("option host: want the directory of a socket; a host's name stands before the database")
	}
	return network.Text(name, value, &t.socket)
}
