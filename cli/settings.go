package cli

import (
	"maps"
	"os"
	"slices"

	"golock/cli/term"
	"golock/config"
	"golock/locks"
	"golock/locks/open"
)

// resolve puts a command's flags in order with variables and files.
func resolve(command any) (*config.Values, error) {
	return resolveWith(command, os.LookupEnv, nil)
}

// resolveWithoutName ignores GOLOCK_NAME, which is meant for run. more are flags
// that the command does not have.
func resolveWithoutName(command any, more map[string][]string) (*config.Values, error) {
	return resolveWith(command, lookupWithoutName, more)
}

func resolveWith(command any, lookup func(string) (string, bool), more map[string][]string) (*config.Values, error) {
	all, flags := settingsAndFlags(command)
	maps.Copy(flags, more)
	return config.Resolve(all, config.Layers{Flags: flags, Lookup: lookup, Files: config.HostFiles()})
}

func lookupWithoutName(variable string) (string, bool) {
	if variable == "GOLOCK_NAME" {
		return "", false
	}
	return os.LookupEnv(variable)
}

// readBools reads several settings; the first error wins.
func readBools(v *config.Values, into ...any) error {
	for i := 0; i < len(into); i += 2 {
		value, err := v.Bool(into[i].(string))
		if err != nil {
			return err
		}
		*into[i+1].(*bool) = value
	}
	return nil
}

// openStore opens the store that the settings name.
func openStore(v *config.Values) (locks.Store, error) {
	url := v.Text("store")
	if url == "" {
		return nil, v.Errorf("store", "is empty: unset it for the local store, or set it to a URL")
	}
	store, err := open.Store(url)
	if err != nil {
		return nil, v.Errorf("store", "%v", err)
	}
	return store, nil
}

// configureLog sets up the printer as the settings say.
func configureLog(out *term.Printer, v *config.Values) error {
	var verbose, quiet bool
	if err := readBools(v, "verbose", &verbose, "quiet", &quiet); err != nil {
		return err
	}
	if verbose && quiet {
		return v.Errorf("quiet", "cannot be combined with --verbose")
	}
	format := v.Text("log-format")
	if !slices.Contains([]string{"text", "json"}, format) {
		return v.Errorf("log-format", "%q is neither text nor json", format)
	}
	out.Verbose, out.Quiet, out.JSON = verbose, quiet, format == "json"
	for _, note := range v.Notes() {
		out.Step(note)
	}
	return nil
}
