package rules

import (
	_ "embed"
	"sync"

	"github.com/weirlimit/weir/server/internal/config"
)

// Load reads rules files and folders of them, see [config.Load], and compiles
// what they hold. The mistakes of all files come back as [config.Problems].
func Load(paths ...string) (*Set, error) { return LoadFrom(config.Source{Paths: paths}.Read()) }

// LoadFrom is Load for files that were read.
func LoadFrom(r *config.Reading) (*Set, error) {
	domains, err := r.Domains()
	if err != nil {
		return nil, err
	}
	return Compile(domains)
}

// Parse is Load for one file in memory. The name stands in messages.
func Parse(name string, text []byte) (*Set, error) {
	domain, err := config.Parse(name, text)
	if err != nil {
		return nil, err
	}
	return Compile([]*config.Domain{domain})
}

//go:embed demo.yaml
var demoYAML []byte

var demo = sync.OnceValues(func() (*Set, error) { return Parse("demo.yaml", demoYAML) })

// Demo returns the rules of the domain "demo", to try a server without a file.
func Demo() *Set {
	set, err := demo()
	if err != nil {
		panic(err) // The text is compiled in, and the tests read it.
	}
	return set
}
