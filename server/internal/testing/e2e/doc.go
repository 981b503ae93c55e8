// Package e2e runs what is shipped, the weir binary and the examples, against
// real servers. It has nothing but tests.
package e2e
