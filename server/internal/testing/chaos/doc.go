// Package chaos breaks Redis, the network and the clock while callers use Weir, and
// judges the answers. It has only tests: they record every act, and oracles check the
// histories against the contract. For each oracle, a test shows that it notices a store
// that breaks its promise.
//
// "go test" runs a short form that judges counts. "make chaos" runs the long form, which
// also judges times and prints the promise and the measurement for each fault.
package chaos
