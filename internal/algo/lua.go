package algo

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.lua
var scripts embed.FS

// Assemble returns a script: text with every line "-- @name" replaced by the
// section of that name of each algorithm, as one branch on id. It panics if an
// algorithm lacks a section.
func Assemble(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		name, found := strings.CutPrefix(strings.TrimSpace(line), "-- @")
		if !found {
			out.WriteString(line)
			continue
		}
		for id := range Steps {
			word := "elseif"
			if id == 0 {
				word = "if"
			}
			fmt.Fprintf(&out, "%s id == %d then\n%s", word, id, section(Steps[id].Name, strings.TrimSpace(name)))
		}
		out.WriteString("end\n")
	}
	return out.String()
}

// section returns one section of an algorithm's file, from the line "-- @name"
// to the next one, with what it includes.
func section(file, name string) string {
	text, err := scripts.ReadFile(file + ".lua")
	if err != nil {
		panic(fmt.Sprintf("algo: %s has no twin in Lua", file))
	}
	_, body, found := strings.Cut(string(text), "-- @"+name+"\n")
	if !found {
		panic(fmt.Sprintf("algo: %s.lua has no section %s", file, name))
	}
	var out strings.Builder
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, "-- @include "); ok {
			from, what, _ := strings.Cut(strings.TrimSpace(rest), " ")
			out.WriteString(section(from, what))
			continue
		}
		if strings.HasPrefix(line, "-- @") {
			break
		}
		out.WriteString(line)
	}
	return out.String()
}
