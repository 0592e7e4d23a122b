package main

import (
	"fmt"
	"time"

	"golock/config"
	"golock/runner"
)

// The lease time of a networked store.
const (
	defaultTTL = 30 * time.Second
	leastTTL   = time.Second
)

// leasing reads what concerns leases. On a store without them, a flag that is
// about them is a mistake; from elsewhere it is for other runs.
func leasing(v *config.Values, run *runner.Run, out *printer) error {
	if !run.Store.Traits().Leased {
		for _, key := range []string{"ttl", "on-lost", "show-args"} {
			source, ok := v.Given(key)
			switch {
			case !ok:
			case source.FromFlag():
				return v.Errorf(key, "has no meaning on the store %s: a slot there is free when its holder ends", run.Store.URL())
			default:
				out.step("ignored: the store has no leases", "setting", source.String())
			}
		}
		return nil
	}
	ttl, err := v.Duration("ttl", defaultTTL)
	if err != nil {
		return err
	}
	if ttl < leastTTL {
		return v.Errorf("ttl", "%v is too short: at least %v", ttl, leastTTL)
	}
	run.Request.TTL = ttl
	switch policy := v.Text("on-lost", "stop"); policy {
	case "stop":
	case "warn":
		run.OnlyWarn = true
	default:
		return v.Errorf("on-lost", "%q is neither stop nor warn", policy)
	}
	showArgs := false
	if err := bools(v, map[string]*bool{"show-args": &showArgs}); err != nil {
		return err
	}
	if !showArgs {
		run.Request.Command = withoutArguments(run.Argv)
	}
	return nil
}

// withoutArguments is what a networked store shows of a command: arguments may
// be nobody else's business.
func withoutArguments(argv []string) []string {
	if len(argv) == 1 {
		return argv
	}
	return []string{argv[0], fmt.Sprintf("+%d args", len(argv)-1)}
}
