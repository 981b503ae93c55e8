module github.com/weirlimit/weir/tools/h2spec

go 1.26.0

replace github.com/weirlimit/weir => ../..

require (
	github.com/summerwind/h2spec v2.2.1+incompatible
	github.com/weirlimit/weir v0.0.0-00010101000000-000000000000
)

require (
	github.com/fatih/color v1.19.0 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)
