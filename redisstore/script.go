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
	//go:embed lua/act.lua
	actLua string
	//go:embed lua/extend.lua
	extendLua string
)

// A script is a text and the name under which Redis caches it.
type script struct{ text, sha string }

// shipped is the script in use: everything in it is constant.
var shipped = assemble(clockLua)

// assemble builds the script around a clock.
func assemble(clock string) script { return weave(clock, "", "", "") }

// weave builds the script around a clock, with what an extension wants done
// before the acts are decided, before anything is written, and after.
func weave(clock, opening, before, after string) script {
	act := strings.NewReplacer("-- @before\n", before, "-- @after\n", after).Replace(actLua)
	return named(algo.Assemble(headLua + clock + opening + act))
}

func named(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}
