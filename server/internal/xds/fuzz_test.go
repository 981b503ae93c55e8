package xds

import (
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
)

// FuzzConvert: whatever a management server sends is either rules or mistakes with their
// places, with an overlay and without.
func FuzzConvert(f *testing.F) {
	overlay, err := config.ParseOverlay("overlay", []byte("overlay: [{path: a*, algorithm: gcra, burst: 5}, {algorithm: fixed_window, time_zone: UTC}]"))
	if err != nil {
		f.Fatal(err)
	}
	metadata, err := structpb.NewStruct(map[string]any{"a": []any{1, "x", nil, true}, "<<": map[string]any{}})
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range []*ratelimitv3.RateLimitConfig{
		{},
		{Name: "n", Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{
			{Key: "a", RateLimit: &ratelimitv3.RateLimitPolicy{Unit: 5, RequestsPerUnit: 7, Name: "n"}, Metadata: metadata, ShadowMode: true},
			{Key: "a", Value: "b*", Descriptors: []*ratelimitv3.RateLimitDescriptor{{Key: "c", RateLimit: &ratelimitv3.RateLimitPolicy{Unlimited: true, Replaces: []*ratelimitv3.RateLimitReplace{{Name: "n"}}}}}},
			{Key: "a", RateLimit: &ratelimitv3.RateLimitPolicy{Unit: 99}},
		}},
	} {
		text, err := proto.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		resources := []*anypb.Any{{TypeUrl: TypeURL, Value: text}}
		for _, o := range []*config.Overlay{nil, overlay} {
			domains, err := convert(resources, true, o)
			if err != nil {
				for line := range strings.SplitSeq(err.Error(), "\n") {
					if !strings.HasPrefix(line, "xds:") {
						t.Fatalf("a mistake without its place: %q in %q", line, err)
					}
				}
				continue
			}
			if _, err := rules.Compile(domains); err != nil {
				t.Fatalf("good rules cannot be compiled: %v", err)
			}
			_ = o.Check(domains)
		}
	})
}
