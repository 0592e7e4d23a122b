package testkit

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
)

// seedVariable sets another seed of random choices.
const seedVariable = "LOCKTEST_SEED"

// Seed returns the seed of random choices. All runs have the same one, except in a campaign.
func Seed(t testing.TB) uint64 {
	t.Helper()
	text := os.Getenv(seedVariable)
	switch {
	case text == "" && Campaign():
		return rand.Uint64()
	case text == "":
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", seedVariable, err)
	}
	return seed
}

// FixRapid gives the package rapid its seed, as SetDefaults does. It is for tests
// without a TestMain, and must be called before each Check.
var FixRapid = sync.OnceFunc(func() {
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "rapid.seed" })
	if text := os.Getenv(seedVariable); text != "" && !set {
		_ = flag.Set("rapid.seed", text)
	} else if !Campaign() && !set {
		_ = flag.Set("rapid.seed", "1")
	}
})
