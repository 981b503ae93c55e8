module github.com/weirlimit/weir/server/tools/h2spec

go 1.26.0

replace github.com/weirlimit/weir => ../../..

require github.com/summerwind/h2spec v2.2.1+incompatible

require github.com/weirlimit/weir v0.0.0 // indirect

require (
	github.com/fatih/color v1.19.0 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/weirlimit/weir/server v0.0.0
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/weirlimit/weir/server => ../..

replace github.com/weirlimit/weir/trace => ../../../trace
