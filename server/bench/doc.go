// Package bench compares Weir with other limiters, in memory and on one Redis. It has
// nothing but benchmarks and tests:
//
//	go test -bench Redis/hot -benchtime 2s
//	go test -bench 'Bytes|State' -benchtime 100000x
package bench
