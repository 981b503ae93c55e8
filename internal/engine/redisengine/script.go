package redisengine

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"

	"github.com/weirlimit/weir/internal/algo"
)

//go:embed lua
var sections embed.FS

// section returns a file of the folder lua, with the sections that it includes by lines
// "-- @section NAME".
func section(name string) string {
	text, err := sections.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("redisengine: the script has no section " + name)
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if included, found := strings.CutPrefix(strings.TrimSpace(line), "-- @section "); found {
			line = section(included)
		}
		out.WriteString(line)
	}
	return out.String()
}

// A script is a text and the name under which Redis caches it.
type script struct{ text, sha string }

// scripts are the two scripts of a store: one for plain batches, and one for all acts.
type scripts struct{ plain, whole script }

// shipped are the scripts in use: everything in them is constant.
var shipped = assemble(section("clock"))

// assemble builds the scripts around a clock.
func assemble(clock string) scripts {
	plain := algo.Assemble(section("head")+clock+section("plain"), stringIDs()...)
	return scripts{plain: named(plain), whole: weave(clock, "", "", "")}
}

// stringIDs returns the algorithms whose state is one string.
func stringIDs() (ids []algo.ID) {
	for id := range algo.Steps {
		if algo.Steps[id].State != algo.Collection {
			ids = append(ids, algo.ID(id))
		}
	}
	return ids
}

// weave builds the script for all acts around a clock, with the Lua of an extension: its
// opening, and its parts before and after the acts are written.
func weave(clock, opening, before, after string) script {
	act := strings.NewReplacer("-- @before\n", before, "-- @after\n", after).Replace(section("act"))
	return named(algo.Assemble(section("head") + clock + opening + act))
}

func named(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}
