package redisstore

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/weirlimit/weir/internal/algo"
)

var (
	//go:embed lua/head.lua
	headLua string
	//go:embed lua/clock.lua
	clockLua string
	//go:embed lua/run.lua
	runLua string
	//go:embed lua/plain.lua
	plainLua string
	//go:embed lua/act.lua
	actLua string
	//go:embed lua/extend.lua
	extendLua string
)

// A script is a text and the name under which Redis caches it.
type script struct{ text, sha string }

// scripts are what a store runs: one for takes that are plain, and one for all
// acts. Both come from the same sections.
type scripts struct{ plain, whole script }

// shipped are the scripts in use: everything in them is constant.
var shipped = assemble(clockLua)

// assemble builds the scripts around a clock.
func assemble(clock string) scripts {
	text := headLua + clock + strings.Replace(plainLua, "-- @run\n", runLua, 1)
	return scripts{plain: named(algo.Assemble(text, stringIDs...)), whole: weave(clock, "", "", "")}
}

// stringIDs are the algorithms whose state is one string.
var stringIDs = []algo.ID{algo.GCRA, algo.FixedWindow, algo.RollingWindow, algo.TokenBucket, algo.SlidingCounter, algo.LeakyBucket}

// weave builds the script for all acts around a clock, with what an extension
// wants done before the acts are decided, before anything is written, and after.
func weave(clock, opening, before, after string) script {
	act := strings.NewReplacer("-- @run\n", runLua, "-- @before\n", before, "-- @after\n", after).Replace(actLua)
	return named(algo.Assemble(headLua + clock + opening + act))
}

func named(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}
