package storetest

import "flag"

var effort = flag.Int("effort", 1, "how many times as long the random histories are")

// Length returns how many steps a random history has, of which the tests of every change make
// that many. The flag -effort makes it longer.
func Length(steps int) int { return steps * *effort }
