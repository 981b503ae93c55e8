// Generate writes what is made of the keys of rules files: their JSON Schema, and
// their reference in the docs. It runs in the folder of package config.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/weirlimit/weir/server/internal/config"
)

const (
	schema = "weir.schema.json"
	docs   = "../../../docs/configuration.md"
	begin  = "<!-- reference: go generate ./server/internal/config -->\n"
	end    = "<!-- /reference -->"
)

func main() {
	if err := generate(); err != nil {
		log.Fatal(err)
	}
}

func generate() error {
	if err := os.WriteFile(schema, config.Schema(), 0o644); err != nil {
		return err
	}
	text, err := os.ReadFile(docs)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no section between %q and %q", docs, begin, end)
	}
	return os.WriteFile(docs, []byte(before+begin+config.Reference()+end+after), 0o644)
}
