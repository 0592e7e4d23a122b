package sql

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golock/locks"
	"golock/locks/network"
)

// option takes an option of golock, or one of the server's own clients, which has the same meaning as in those.
func (t *Target) option(d Dialect, name, value string) error {
	if known, err := t.Set(name, value); known {
		return err
	}
	switch name {
	case "table":
		const part = `[A-Za-z_]\w{0,47}`
		if ok, _ := regexp.MatchString("^("+part+`\.)?`+part+"$", value); !ok {
			return fmt.Errorf("option table=%q: expected a name of letters, digits and _, at most 48, "+
				"perhaps after another one and a dot", locks.Printable(value, 20))
		}
		t.table = value
		return nil
	case "waiters":
		n, err := strconv.ParseUint(value, 10, 10)
		if err != nil {
			return fmt.Errorf("option waiters=%q: expected a number from 0 to 1023", locks.Printable(value, 20))
		}
		t.waiters = int(n)
		return nil
	case "tls":
		return t.setTLS(name, value, "off", "verify-ca", "on", "false", "verify-ca", "true")
	case "connect_timeout":
		return network.Timeout(name, value, &t.connectTimeout)
	case "socket":
		return network.Text(name, value, &t.Socket)
	}
	client := t.mysqlOption
	if d.Schemes[0] == "postgres" {
		client = t.postgresOption
	}
	known, err := client(name, value)
	if !known {
		return fmt.Errorf("option %q: is not known: expected socket, table, waiters, quarantine, tls, "+
			"ca, cert, key or server-name", locks.Printable(name, 20))
	}
	return err
}

// postgresOption takes an option of libpq's.
func (t *Target) postgresOption(name, value string) (known bool, err error) {
	switch name {
	case "sslmode":
		err = t.setTLS(name, value, "disable", "verify-ca", "verify-full")
	case "sslrootcert":
		if value != "system" { // system is what counts without the option ca
			return t.Set("ca", value)
		}
	case "sslcert", "sslkey":
		return t.Set(strings.TrimPrefix(name, "ssl"), value)
	case "application_name":
		err = network.Text(name, value, &t.Application)
	case "host":
		if !strings.HasPrefix(value, "/") {
			return true, errors.New("option host: expected the directory of a socket; a host's name stands before the database")
		}
		err = network.Text(name, value, &t.Socket)
	case "target_session_attrs":
		if !slices.Contains([]string{"any", "read-write", "primary"}, value) {
			err = fmt.Errorf("option %s: expected read-write: golock writes", name)
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
		return t.Set(strings.TrimPrefix(name, "ssl-"), value)
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

// setTLS takes an option that says how much of a server's certificate is verified. words are the values for
// no TLS, for the authority only, and for the authority and the server's name, in this order. Three more may
// follow that mean the same.
func (t *Target) setTLS(name, value string, words ...string) error {
	i := slices.Index(words, value)
	if i >= 0 {
		isOn, acceptsAnyName := i%3 > 0, i%3 == 1
		return t.SetTLS(name, isOn, acceptsAnyName)
	}
	why := ""
	switch strings.ToLower(value) {
	case "require", "required", "prefer", "preferred", "allow", "skip-verify":
		why = "does not verify the server: "
	}
	return fmt.Errorf("option %s=%q: %sexpected %s, which verifies the server, %s, which does not check its name, or %s",
		name, locks.Printable(value, 20), why, words[2], words[1], words[0])
}
