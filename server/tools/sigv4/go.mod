module github.com/weirlimit/weir/server/tools/sigv4

go 1.26.0

replace github.com/weirlimit/weir => ../../..

replace github.com/weirlimit/weir/server => ../..

require (
	github.com/aws/aws-sdk-go-v2 v1.45.1
	github.com/weirlimit/weir/server v0.0.0
)

require (
	github.com/aws/smithy-go v1.28.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dchest/siphash v1.2.3 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	github.com/weirlimit/weir v0.0.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
