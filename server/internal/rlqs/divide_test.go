package rlqs

import "testing"

// TestDivide: small wants are met, the others get one level, and what nobody wants is lent.
func TestDivide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		room  float64
		wants []float64
		share []float64
	}{
		{100, []float64{60, 60, 60}, []float64{100. / 3, 100. / 3, 100. / 3}},
		{100, []float64{12, 12, 190}, []float64{12, 12, 76}},
		{100, []float64{10, 20, 30}, []float64{10 + 40./3, 20 + 40./3, 30 + 40./3}},
		{100, []float64{0}, []float64{100}},
		{3, []float64{0, 0, 9}, []float64{0, 0, 3}},
	} {
		for i, own := range c.wants {
			if got := divide(c.room, append([]float64{}, c.wants...), own); got < c.share[i]-1e-9 || got > c.share[i]+1e-9 {
				t.Errorf("of %v, %v gets %v of %v: want %v", c.wants, own, got, c.room, c.share[i])
			}
		}
	}
}
