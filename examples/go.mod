module github.com/weirlimit/weir/examples

go 1.26.0

replace github.com/weirlimit/weir => ..

require (
	github.com/redis/go-redis/v9 v9.23.0
	github.com/weirlimit/weir v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dchest/siphash v1.2.3 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
