package redisstore

import (
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// Script returns the text of the script that every [Store] runs, without extensions, for
// programs in other languages. It begins with a description of its keys, arguments and
// reply; a [Recipe] has the rest.
func Script() string { return shipped.whole.text }

// A Recipe tells a program in another language how to call [Script] for the same keys as
// a [Store]. The names of its JSON fields are stable; their contents belong to the script
// of the same version.
type Recipe struct {
	// SHA is the name under which Redis caches the script.
	SHA string `json:"sha"`
	// Prefix begins every key. After it comes the hash tag {abcd}: the lowest
	// 24 bits of a SipHash-2-4 of the charge's hash tag, six bits a letter, the lowest
	// first, in the alphabet A…Z a…z 0…9 - _.
	Prefix string `json:"prefix"`
	// HashKey is the key of that hash: two numbers in hexadecimal digits.
	HashKey [2]string     `json:"hash_key"`
	Limits  []PackedLimit `json:"limits"`
}

// A PackedLimit is a limit in the script's format.
type PackedLimit struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
	// Kind follows the hash tag in a key's name, and is followed by a colon and
	// the key.
	Kind string `json:"kind"`
	// Rule is the limit in the request, in hexadecimal digits.
	Rule string `json:"rule"`
	// TTL is the limit's argument to the script.
	TTL string `json:"ttl"`
}

// NewRecipe returns the recipe for a store with the Prefix and the Secret of o. Limits
// with calendar windows have no recipe, because their boundaries change. The error is a
// [*weir.InvalidError].
func NewRecipe(o Options, limits ...weir.Limit) (*Recipe, error) {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if err := checkPrefix(o.Prefix); err != nil {
		return nil, err
	}
	keys := newKeyer(o.Prefix, o.Secret)
	r := &Recipe{SHA: shipped.whole.sha, Prefix: o.Prefix, Limits: []PackedLimit{}}
	r.HashKey = [2]string{fmt.Sprintf("%016x", keys.k0), fmt.Sprintf("%016x", keys.k1)}
	for _, limit := range limits {
		packed, err := pack(limit)
		if err != nil {
			return nil, err
		}
		r.Limits = append(r.Limits, packed)
	}
	return r, nil
}

func pack(limit weir.Limit) (PackedLimit, error) {
	compiled, err := limit.Compile()
	if err != nil {
		return PackedLimit{}, err
	}
	rule := compiled.RuleAt(0)
	if rule.Calendar {
		return PackedLimit{}, &weir.InvalidError{Field: "time_zone", Value: limit.TimeZone, Want: "none: the boundaries of calendar windows are not constant"}
	}
	step := &algo.Steps[limit.Algorithm]
	return PackedLimit{
		Name: limit.Name, Count: limit.Count,
		Kind: string([]byte{step.Letter, step.Format}),
		Rule: hex.EncodeToString(appendRule(nil, &rule)),
		TTL:  strconv.FormatInt(rule.Drain/1000+1+slack, 10),
	}, nil
}
