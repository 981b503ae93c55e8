package cli

import (
	"runtime/debug"
	"testing"
)

// TestBuild: what each way of building leaves to be said.
func TestBuild(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		way  string
		info debug.BuildInfo
		want string
	}{
		{"go install", debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		{"go build", debug.BuildInfo{
			Main:     debug.Module{Version: "v1.2.4-0.20260102030405-abcdef012345"},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abcdef"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}},
		}, "v1.2.4-0.20260102030405-abcdef012345 (abcdef, 2026-01-02T03:04:05Z)"},
		{"without modules", debug.BuildInfo{}, "unknown"},
	} {
		if got := newBuild(&test.info).String(); got != test.want {
			t.Errorf("%s: got %q, want %q", test.way, got, test.want)
		}
	}
	if got, want := (build{"v1", "abc", ""}).String(), "v1 (abc)"; got != want {
		t.Errorf("without a date: got %q, want %q", got, want)
	}
}
