package open

import (
	"golock/locks"
	"golock/locks/files"
)

func filesEngines() []engine {
	var all []engine
	for _, scheme := range files.Schemes() {
		all = append(all, engine{scheme: scheme, open: openFiles})
	}
	return all
}

func openFiles(address string) (locks.Store, error) {
	s, err := files.Open(address)
	if err != nil {
		return nil, err
	}
	return s, nil
}
