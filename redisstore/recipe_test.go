package redisstore

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// TestRecipe holds a recipe to what a store sends for each algorithm.
func TestRecipe(t *testing.T) {
	t.Parallel()
	for id := range algo.Steps {
		limit := weir.Limit{Name: "n", Algorithm: weir.Algorithm(id), Count: 7, Period: time.Minute}
		o := Options{Prefix: "p:", Secret: "s"}
		recipe, err := NewRecipe(o, limit)
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := limit.Compile()
		if err != nil {
			t.Fatal(err)
		}
		keys := newKeyer(o.Prefix, o.Secret)
		charge := weir.Charge{Key: "key", Slot: "slot", Limit: compiled}
		b := newBatch(keys, 0)
		b.add(&weir.Act{ID: "id", Charges: []weir.Charge{charge}})
		args := b.args()
		got := recipe.Limits[0]
		if rule, err := hex.DecodeString(got.Rule); err != nil || !strings.Contains(string(args[0].([]byte)), string(rule)) {
			t.Errorf("%v: rule %s, %v, is not in the request %x", limit.Algorithm, got.Rule, err, args[0])
		}
		if got.TTL != args[1] || got.Name != "n" || got.Count != 7 {
			t.Errorf("%v: %+v", limit.Algorithm, got)
		}
		if name := keys.name(&charge); !strings.HasPrefix(name, recipe.Prefix+"{") || !strings.HasSuffix(name, "}"+got.Kind+":key") {
			t.Errorf("%v: kind %s, key %s", limit.Algorithm, got.Kind, name)
		}
		if recipe.SHA != named(Script()).sha {
			t.Errorf("the SHA is not the script's")
		}
	}
}

func TestRecipeRefuses(t *testing.T) {
	t.Parallel()
	for field, make := range map[string]func() (*Recipe, error){
		"prefix": func() (*Recipe, error) { return NewRecipe(Options{Prefix: "{"}) },
		"period": func() (*Recipe, error) { return NewRecipe(Options{}, weir.Limit{Count: 1}) },
		"time_zone": func() (*Recipe, error) {
			return NewRecipe(Options{}, weir.Limit{Count: 1, Period: 24 * time.Hour, Algorithm: weir.FixedWindow, TimeZone: "UTC"})
		},
	} {
		var invalid *weir.InvalidError
		if recipe, err := make(); recipe != nil || !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %+v, %v", field, recipe, err)
		}
	}
}
