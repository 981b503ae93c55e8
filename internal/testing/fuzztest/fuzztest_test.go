package fuzztest_test

import (
	"testing"

	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

// failing notes that a test would have failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()               {}
func (f *failing) Errorf(string, ...any) { f.failed = true }

var kept []byte

func TestWithin(t *testing.T) {
	for name, test := range map[string]struct {
		input, take int
		fails       bool
	}{
		"nothing":           {0, 0, false},
		"too much":          {0, 256 << 10, true},
		"much of much":      {4 << 10, 256 << 10, false},
		"too much of much":  {4 << 10, 1 << 20, true},
		"within the bound":  {0, 16 << 10, false},
		"nothing of little": {1, 0, false},
	} {
		judge := &failing{TB: t}
		fuzztest.Within(judge, fuzztest.MostBytes, test.input, func() {
			if test.take > 0 {
				kept = make([]byte, test.take)
			}
		})
		if judge.failed != test.fails {
			t.Errorf("%s: failed %v, want %v", name, judge.failed, test.fails)
		}
	}
}
