// Package chaos breaks what Weir stands on while callers ask, and judges what they
// were told. It has nothing but tests: every act is recorded, and oracles hold the
// histories against the contract; each oracle is shown to notice a store that
// breaks its promise.
//
// "go test" judges counts, in a short form. "make chaos" does more of the same,
// judges times too, and prints for each fault what was promised and what was
// measured.
package chaos
