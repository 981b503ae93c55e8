package bench

import (
	"fmt"
	"math/rand/v2"
)

// Keys is an endless stream of keys, drawn before the run so that drawing costs
// nothing while it lasts.
type Keys struct {
	Name  string
	names []string
	draws []int32
}

const drawn = 1 << 20

// Hot is one key.
func Hot() *Keys {
	return &Keys{Name: "hot", names: []string{"user:hot"}, draws: make([]int32, 1)}
}

// Uniform draws every one of n keys alike.
func Uniform(n int) *Keys {
	return draw(fmt.Sprint("uniform:", n), n, func(rng *rand.Rand) int { return rng.IntN(n) })
}

// Zipf draws the i-th of n keys about 1/i^1.1 as often as the first.
func Zipf(n int) *Keys {
	var z *rand.Zipf
	return draw(fmt.Sprint("zipf:", n), n, func(rng *rand.Rand) int {
		if z == nil {
			z = rand.NewZipf(rng, 1.1, 1, uint64(n-1))
		}
		return int(z.Uint64())
	})
}

func draw(name string, n int, next func(*rand.Rand) int) *Keys {
	k := &Keys{Name: name, names: make([]string, n), draws: make([]int32, drawn)}
	for i := range k.names {
		k.names[i] = fmt.Sprintf("user:%08d", i)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range k.draws {
		k.draws[i] = int32(next(rng))
	}
	return k
}

// at returns the i-th key of the stream.
func (k *Keys) at(i int) string { return k.names[k.draws[i&(len(k.draws)-1)]] }
