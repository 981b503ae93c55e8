package algo

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.lua
var scripts embed.FS

// Assemble returns a script: text with every line "-- @name" replaced by the
// section of that name of each of the algorithms, all if none is given, as one
// branch on id, and every line "-- @include file name" by that section of that
// file. It panics if an algorithm lacks a section.
func Assemble(text string, ids ...ID) string {
	if len(ids) == 0 {
		for id := range Count {
			ids = append(ids, id)
		}
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		name, found := strings.CutPrefix(strings.TrimSpace(line), "-- @")
		switch {
		case !found:
			out.WriteString(line)
		case strings.HasPrefix(name, "include "):
			out.WriteString(include(name))
		default:
			out.WriteString(branches(name, ids))
		}
	}
	return out.String()
}

func branches(name string, ids []ID) string {
	var out strings.Builder
	word := "if"
	for _, id := range ids {
		fmt.Fprintf(&out, "%s id == %d then\n%s", word, id, section(Steps[id].Name, name))
		word = "elseif"
	}
	out.WriteString("end\n")
	return out.String()
}

// include returns the text that "include file name" stands for.
func include(words string) string {
	file, name, _ := strings.Cut(strings.TrimPrefix(words, "include "), " ")
	return section(file, name)
}

// section returns one section of an algorithm's file, from the line "-- @name" to the
// next one, with its includes.
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
		words, found := strings.CutPrefix(strings.TrimSpace(line), "-- @")
		switch {
		case !found:
			out.WriteString(line)
		case strings.HasPrefix(words, "include "):
			out.WriteString(include(words))
		default:
			return out.String()
		}
	}
	return out.String()
}
