// Package network has what the engines with servers share: URLs with their options, TLS, and parts
// of golock doctor. The lean program does not link it, because crypto/tls would cost each start 5 %
// more CPU time and 0.7 MiB.
package network

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golock/locks"
	"golock/locks/lease"
)

// URL is a parsed URL of a server. No error shows a text that may be part of the password: an
// unescaped slash or question mark in a password moves the rest of it into host, path or options.
// url.Parse cannot parse lists of hosts, and its errors show the password.
type URL struct {
	Scheme, User, Password string
	Authority              string // hosts, without user and password
	Path                   string // the text between the first slash and the options, still escaped
	user, query            string // the user and the options, still escaped
}

// SplitURL parses a URL. example is a correct URL for the error messages.
func SplitURL(address, example string) (u URL, err error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return u, fmt.Errorf("expected %s, with two slashes after the colon", example)
	}
	if strings.Contains(rest, "#") {
		return u, errors.New("fragment: a store's URL has no fragment (write %23 if the # belongs to a password)")
	}
	if end := strings.IndexAny(rest, "/?"); end >= 0 && strings.Contains(rest[end:], "@") {
		return u, errors.New("user and password: write / as %2F, ? as %3F and @ as %40 " +
			"(@ elsewhere is %40 too)")
	}
	u.Scheme = scheme
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	u.Path, u.query = escapeInvisible(path), escapeInvisible(query)
	userEnd := strings.LastIndexByte(authority, '@')
	u.Authority = authority[userEnd+1:]
	name, password, _ := strings.Cut(authority[:max(userEnd, 0)], ":")
	u.user = escapeInvisible(name)
	u.User, err = Unescape("user", name)
	if err != nil {
		return u, err
	}
	u.Password, err = Unescape("password", password)
	return u, err
}

// escapeInvisible escapes all bytes except visible ASCII, so that an error can show the text.
func escapeInvisible(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c > ' ' && c < 0x7f {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Unescape decodes a part of a URL.
func Unescape(part, text string) (string, error) {
	text, err := url.PathUnescape(text)
	if err != nil {
		err = fmt.Errorf("%s: has a %% that is not followed by two hexadecimal digits (write %%25 for a percent sign)", part)
	}
	return text, err
}

// Redacted returns the URL without passwords. Apart from them it is equivalent.
func (u URL) Redacted() string {
	text := u.Scheme + "://"
	if u.User != "" {
		text += u.user + "@"
	}
	text += u.Authority
	if u.Path != "" {
		text += "/" + u.Path
	}
	options := slices.DeleteFunc(strings.Split(u.query, "&"), func(option string) bool {
		name, _, _ := strings.Cut(option, "=")
		return name == "" || strings.HasSuffix(name, "password")
	})
	if len(options) > 0 {
		text += "?" + strings.Join(options, "&")
	}
	return text
}

// EachOption calls set with the name and the unescaped value of each option.
func (u URL) EachOption(set func(name, value string) error) error {
	if u.query == "" {
		return nil
	}
	for option := range strings.SplitSeq(u.query, "&") {
		name, escaped, _ := strings.Cut(option, "=")
		value, err := Unescape("option "+locks.Printable(name, 20), escaped)
		if err == nil {
			err = set(name, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Text sets *where to the value of an option, which must not be empty.
func Text(name, value string, where *string) error {
	if value == "" || strings.ContainsRune(value, 0) {
		return fmt.Errorf("option %s: is empty, or contains a zero byte", name)
	}
	*where = value
	return nil
}

// Hosts parses a list of hosts. port is the port of a host that names none.
func Hosts(list, port string) ([]string, error) {
	var hosts []string
	for host := range strings.SplitSeq(list, ",") {
		name, number := host, port
		if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
			name, number = host[:i], host[i+1:]
		}
		if strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]") {
			name = name[1 : len(name)-1]
		} else if strings.ContainsAny(name, ":[]") {
			return nil, fmt.Errorf("host: an IPv6 address stands in square brackets, as in [::1]:%s", port)
		}
		shown := locks.Printable(name, 60)
		if name == "" || strings.ContainsAny(name, " %()") || strings.ContainsFunc(name, unicode.IsControl) {
			return nil, fmt.Errorf("host %q: expected a name or an address", shown)
		}
		if n, err := strconv.ParseUint(number, 10, 16); err != nil || n == 0 {
			// The text is not shown, because in a URL without a host it is the password.
			return nil, fmt.Errorf("port of host %q: expected a number from 1 to 65535", shown)
		}
		hosts = append(hosts, net.JoinHostPort(name, number))
	}
	return hosts, nil
}

// Options are the options that the URLs of all servers have.
type Options struct {
	Quarantine time.Duration // how long the store grants nothing after the server may have forgotten something
	TLS        bool
	AnyName    bool   // the server's certificate may name another server
	tlsOption  string // the option that has set TLS and AnyName; empty if none has
	ca         string // file of the authorities that may have signed the server's certificate; empty for the system's
	cert, key  string // files of the client's certificate; empty if it has none
	serverName string // the name that the server's certificate must have; if empty, the name of the host

	Trips *Trips // the round trips to the servers of the URL
}

// NewOptions returns the default options.
func NewOptions() Options { return Options{Quarantine: 3 * time.Second, Trips: &Trips{}} }

// Set sets an option, and reports whether Options knows it.
func (o *Options) Set(name, value string) (known bool, err error) {
	if name == "quarantine" {
		o.Quarantine, err = duration(name, value)
		if err == nil && (o.Quarantine < 0 || o.Quarantine > longestOption) {
			err = fmt.Errorf("option quarantine=%q: expected 0 to 1h", locks.Printable(value, 20))
		}
		return true, err
	}
	switch name {
	case "ca":
		return true, Text(name, value, &o.ca)
	case "cert":
		return true, Text(name, value, &o.cert)
	case "key":
		return true, Text(name, value, &o.key)
	case "server-name":
		return true, Text(name, value, &o.serverName)
	}
	return false, nil
}

// longestOption is the longest duration that an option accepts.
const longestOption = time.Hour

// duration parses the duration of an option, in the form of package time or in seconds.
func duration(name, value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err == nil {
		return d, nil
	}
	seconds, err := strconv.ParseFloat(value, 64)
	limit := longestOption.Seconds()
	isInRange := seconds >= -limit && seconds <= limit // false for NaN, too
	if err != nil || !isInRange {
		return 0, fmt.Errorf("option %s=%q: expected a duration, as in 3s", name, locks.Printable(value, 20))
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// Timeout parses an option that other clients of the server know too, and lowers *limit to its
// duration. A duration of 0 or less leaves *limit unchanged.
func Timeout(name, value string, limit *time.Duration) error {
	d, err := duration(name, value)
	if d > 0 {
		*limit = min(*limit, d)
	}
	return err
}

// SetTLS records what an option says about TLS: whether it is on, and whether the certificate may
// name another server. It refuses an option that contradicts an earlier one.
func (o *Options) SetTLS(option string, on, anyName bool) error {
	if o.tlsOption != "" && (o.TLS != on || o.AnyName != anyName) {
		return fmt.Errorf("options %s and %s: contradict each other", o.tlsOption, option)
	}
	o.tlsOption, o.TLS, o.AnyName = option, on, anyName
	return nil
}

// Check refuses options that contradict each other. tlsOption is the option that switches TLS on,
// for the error message.
func (o *Options) Check(tlsOption string) error {
	switch {
	case !o.TLS && (o.ca != "" || o.cert != "" || o.key != "" || o.serverName != ""):
		return fmt.Errorf("options ca, cert, key and server-name: only with %s", tlsOption)
	case (o.cert == "") != (o.key == ""):
		return errors.New("options cert and key: one without the other")
	}
	return nil
}

// Config returns the configuration of TLS, or nil without TLS. With it the client verifies the
// server's certificate by the authorities of the option ca, or by the system's. host is
// HOST:PORT, or "" if the caller sets the name that the certificate must have.
func (o *Options) Config(host string) (*tls.Config, error) {
	if !o.TLS {
		return nil, nil
	}
	c := &tls.Config{ServerName: o.serverName, MinVersion: tls.VersionTLS12}
	if c.ServerName == "" && host != "" {
		c.ServerName, _, _ = net.SplitHostPort(host)
	}
	if o.ca != "" {
		text, err := os.ReadFile(o.ca)
		if err != nil {
			return nil, &lease.Refusal{Err: fmt.Errorf("option ca: %w", err)}
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, &lease.Refusal{Err: fmt.Errorf("option ca: %s holds no certificate", o.ca)}
		}
	}
	if o.cert != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return nil, &lease.Refusal{Err: fmt.Errorf("options cert and key: %w", err)}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if o.AnyName {
		c.InsecureSkipVerify = true // VerifyConnection verifies all but the name
		c.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s, c.RootCAs) }
	}
	return c, nil
}

// verifyChain verifies a server's certificate, but not its name.
func verifyChain(s tls.ConnectionState, roots *x509.CertPool) error {
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range s.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := s.PeerCertificates[0].Verify(options); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}

// TLSHint says what to do if a certificate is not accepted, or if the port does not speak TLS.
// isTLS reports whether err is such an error.
func TLSHint(err error) (hint string, isTLS bool) {
	var certificate *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	var alert *net.OpError // tls.AlertError is for QUIC only; over TCP an alert is a net.OpError
	switch {
	case errors.As(err, &certificate):
		return "?ca=FILE names the authority that signed it, ?server-name= the name in it", true
	case errors.As(err, &alert) && alert.Op == "remote error" && strings.Contains(alert.Error(), "certificate"):
		return "the server wants another certificate than ?cert=FILE&key=FILE give", true
	case errors.As(err, &noTLS):
		return "the server does not speak TLS on this port", true
	}
	return "", false
}
