package testserver

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// verdict is a test that remembers how it was ended.
type verdict struct {
	testing.TB
	said string
}

func (v *verdict) Fatalf(format string, args ...any) { v.end("fail: " + fmt.Sprintf(format, args...)) }

func (v *verdict) Skipf(format string, args ...any) { v.end("skip: " + fmt.Sprintf(format, args...)) }

func (v *verdict) end(said string) {
	v.said = said
	runtime.Goexit()
}

// ask calls Require as a test of its own and returns the path or how it ended.
func ask(t *testing.T, program string) string {
	v := &verdict{TB: t}
	done := make(chan string)
	go func() {
		defer close(done)
		done <- Require(v, program)
	}()
	if path, ok := <-done; ok {
		return path
	}
	return v.said
}

func TestRequire(t *testing.T) {
	for _, tc := range []struct{ program, list, want string }{
		{"go", "", "/"},
		{"go", "go", "/"},
		{"weir-absent", "", "skip: "},
		{"weir-absent", "redis,nginx", "skip: "},
		{"redis-absent", "nginx,redis", "fail: "},
		{"redis-absent", "rediss,nginx", "skip: "},
		{"weir-absent", "redis,weir-absent", "fail: "},
		{"weir-absent-server", "weir-absent", "fail: "},
	} {
		t.Run(tc.program+"_"+tc.list, func(t *testing.T) {
			t.Setenv(RequireVariable, tc.list)
			if got := ask(t, tc.program); !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %q, want %s…", got, tc.want)
			}
		})
	}
}
