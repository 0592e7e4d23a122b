package open

import (
	"golock/locks"
	"golock/locks/leasefile"
)

func leasefileEngines() []engine {
	var all []engine
	for _, scheme := range leasefile.Schemes() {
		all = append(all, engine{scheme: scheme, form: scheme + ":///DIR", open: openLeasefile})
	}
	return all
}

func openLeasefile(address string) (locks.Store, error) {
	s, err := leasefile.Open(address)
	if err != nil {
		return nil, err
	}
	return s, nil
}
