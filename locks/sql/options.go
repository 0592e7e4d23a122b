package sql

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golock/locks"
	"golock/locks/network"
)

// postgresOption takes an option of libpq's.
func (t *Target) postgresOption(name, value string) (known bool, err error) {
	switch name {
	case "sslmode":
		err = t.setTLS(name, value, "disable", "verify-ca", "verify-full")
	case "sslrootcert":
		if value != "system" { // else as without the option
			_, err = t.Set("ca", value)
		}
	case "sslcert", "sslkey":
		_, err = t.Set(strings.TrimPrefix(name, "ssl"), value)
	case "application_name":
		err = network.Text(name, value, &t.Application)
	case "host":
		if !strings.HasPrefix(value, "/") {
			return true, errors.New("option host: want the directory of a socket; a host's name stands before the database")
		}
		err = network.Text(name, value, &t.Socket)
	case "target_session_attrs":
		if !slices.Contains([]string{"any", "read-write", "primary"}, value) {
			err = fmt.Errorf("option %s: want read-write: golock writes", name)
		}
	case "options":
		err = fmt.Errorf("option %s: golock sets what its transactions need itself; "+
			"for a schema write table=SCHEMA.golock", name)
	case "fallback_application_name", "client_encoding", "keepalives", "keepalives_idle", "keepalives_interval",
		"keepalives_count", "tcp_user_timeout": // mean nothing here
	default:
		return false, nil
	}
	return true, err
}

// mysqlOption takes an option of MySQL's clients or of the Go driver's.
func (t *Target) mysqlOption(name, value string) (known bool, err error) {
	switch name {
	case "ssl-mode":
		err = t.setTLS(name, strings.ToUpper(value), "DISABLED", "VERIFY_CA", "VERIFY_IDENTITY")
	case "ssl-ca", "ssl-cert", "ssl-key":
		_, err = t.Set(strings.TrimPrefix(name, "ssl-"), value)
	case "timeout":
		err = network.Timeout(name, value, &t.connectTimeout)
	case "allowCleartextPasswords", "allowFallbackToPlaintext", "allowOldPasswords":
		if value != "false" {
			err = fmt.Errorf("option %s: golock sends no password in the clear", name)
		}
	case "parseTime", "charset", "collation", "loc", "allowNativePasswords", "checkConnLiveness", "clientFoundRows",
		"columnsWithAlias", "compress", "connectionAttributes", "interpolateParams", "maxAllowedPacket",
		"multiStatements", "readTimeout", "rejectReadOnly", "timeTruncate", "writeTimeout": // mean nothing here
	default:
		return false, nil
	}
	return true, err
}

// setTLS takes an option that says how much of a server's certificate is verified: nothing,
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
