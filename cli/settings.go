package cli

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"golock/cli/term"
	"golock/config"
	"golock/locks"
	"golock/locks/open"
	"golock/runner"
)

// resolve merges a command's flags with variables and files. Only commands with a nameFlag read
// GOLOCK_NAME.
func resolve(command any) (*config.Values, error) {
	if c, ok := command.(interface{ nameLock() error }); ok {
		if err := c.nameLock(); err != nil {
			return nil, err
		}
	}
	_, readsName := command.(interface{ readsName() })
	lookup := func(variable string) (string, bool) {
		if variable == "GOLOCK_NAME" && !readsName {
			return "", false
		}
		return os.LookupEnv(variable)
	}
	all, flags := settings(command)
	foreign, err := checkVariables(all)
	if err != nil {
		return nil, err
	}
	v, err := config.Resolve(all, config.Layers{Flags: flags, Lookup: lookup, Files: config.HostFiles()})
	if err != nil {
		return nil, err
	}
	for _, name := range foreign {
		v.Notes = append(v.Notes, name+" is not a setting of golock, so it is ignored")
	}
	if source, given := v.Given("name"); given && !source.FromFlag() {
		v.Notes = append(v.Notes, fmt.Sprintf("the lock's name %q is from %v", v.Text("name"), source))
	}
	return v, nil
}

// checkVariables returns the variables that look like settings of golock but belong to others. It
// fails if one is probably a misspelt setting.
func checkVariables(all []config.Setting) (foreign []string, err error) {
	const prefix = "GOLOCK_"
	for _, variable := range os.Environ() {
		name, _, isVariable := strings.Cut(variable, "=")
		if !isVariable || !strings.HasPrefix(name, prefix) || runner.IsOutput(name) {
			continue
		}
		isSetting, err := config.CheckVariable(name, prefix, all)
		if err != nil {
			return nil, err
		}
		if !isSetting {
			foreign = append(foreign, name)
		}
	}
	return foreign, nil
}

// resolveStore resolves the settings of a command and opens the store.
func resolveStore(command any) (v *config.Values, store locks.KnownStore, err error) {
	v, err = resolve(command)
	if err == nil {
		store, _, err = openStore(v)
	}
	return v, store, err
}

// openStore opens the store that the settings name. It fails if a setting that was read before is
// wrong. The lean program becomes the full one here if the store needs that: before anything is
// printed or made, and before a run catches signals.
func openStore(v *config.Values) (store locks.KnownStore, a address, err error) {
	if v.Err() != nil {
		return store, a, v.Err()
	}
	a, err = readAddress(v)
	if err != nil {
		return store, a, err
	}
	opened, err := open.Store(a.url)
	switch {
	case err == open.ErrNotLinked:
		return store, a, becomeFull("a store on a server needs")
	case err != nil:
		return store, a, v.Errorf(a.key, "%v", err)
	}
	return locks.Know(opened), a, nil
}

// address is the URL of a store.
type address struct {
	url     string
	key     string // the key of the setting that names the store
	exposed string // the file that has the URL, if it has a password and other users can read the file
}

// readAddress finds the URL of the store that the settings name.
func readAddress(v *config.Values) (a address, err error) {
	if _, ok := v.Given("store-file"); !ok {
		a = address{url: trimURL(v.Text("store")), key: "store"}
		if a.url == "" {
			err = v.Errorf("store", "is empty: unset it for the local store, or set it to a URL")
		}
		return a, err
	}
	if _, hasStore := v.Given("store"); hasStore {
		return a, v.Conflict("store-file", "store", "")
	}
	a.key = "store-file"
	path, err := v.Path(a.key)
	if err != nil {
		return a, err
	}
	if path == "" {
		return a, v.Errorf(a.key, "names no file")
	}
	content, err := config.HostFiles().Read(path)
	if err != nil {
		return a, v.Errorf(a.key, "%s: %w", path, err)
	}
	line, _, _ := strings.Cut(string(content.Data), "\n")
	a.url = trimURL(line)
	if a.url == "" {
		return a, v.Errorf(a.key, "%s: its first line has no URL", path)
	}
	if content.OthersCanRead && hasPassword(a.url) {
		a.exposed = path
	}
	return a, nil
}

// hasPassword reports whether a URL has a password.
func hasPassword(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return false
	}
	_, isSet := u.User.Password()
	return isSet
}

// trimURL removes what does not belong to a URL: the newline of a base64 secret, and the carriage return
// and the byte order mark of a file from Windows. A blank at the end is removed too, because otherwise
// "local:///srv " would be another lock than "local:///srv". A blank in a path is written %20.
func trimURL(text string) string {
	const byteOrderMark = "\ufeff"
	return strings.TrimSpace(strings.TrimPrefix(text, byteOrderMark))
}

// configureLog sets up the printer, and prints the notes and warnings of the settings.
func configureLog(out *term.Printer, v *config.Values) error {
	verbose, quiet, format := v.Bool("verbose"), v.Bool("quiet"), v.Choice("log-format", "text", "json")
	if verbose && quiet {
		v.Fail("quiet", "cannot be combined with --verbose")
	}
	if v.Err() != nil {
		return v.Err()
	}
	out.Verbose, out.Quiet, out.JSON = verbose, quiet, format == "json"
	for _, note := range v.Notes {
		out.Step(note)
	}
	warn(out, v)
	return nil
}

// warn prints the warnings of the settings: golock may be using another lock than the user intends.
func warn(out *term.Printer, v *config.Values) {
	for _, warning := range v.Warnings {
		out.Warn(warning)
	}
}
