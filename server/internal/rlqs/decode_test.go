package rlqs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/server/internal/rules"
)

// words returns what a message says.
func words(t testing.TB, message []byte) (domain string, all []string, err error) {
	t.Helper()
	domain, err = decode(message, func(u *usage) error {
		all = append(all, fmt.Sprint(u.id, u.allowed, u.denied))
		return nil
	})
	return domain, all, err
}

// FuzzDecode: whatever a decoder of protobuf reads is read alike, and nothing else panics.
func FuzzDecode(f *testing.F) {
	m, err := proto.Marshal(&pb.RateLimitQuotaUsageReports{Domain: "edge", BucketQuotaUsages: []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{
		{BucketId: &pb.BucketId{Bucket: map[string]string{"b": "1", "a": ""}}, TimeElapsed: durationpb.New(5), NumRequestsAllowed: 1 << 40, NumRequestsDenied: 7}, {},
	}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m)
	f.Add([]byte("\x0a\x01a\x0a\x01b\x12\x0f\x0a\x0d\x0a\x03\x0a\x01a\x0a\x06\x0a\x01a\x12\x01x"))
	f.Fuzz(func(t *testing.T, message []byte) {
		domain, got, err := words(t, message)
		var m pb.RateLimitQuotaUsageReports
		if proto.Unmarshal(message, &m) != nil {
			return
		}
		var want []string
		for _, u := range m.BucketQuotaUsages {
			var id []rules.Entry
			for key, value := range u.GetBucketId().GetBucket() {
				id = append(id, rules.Entry{Key: key, Value: value})
			}
			slices.SortFunc(id, func(a, b rules.Entry) int { return strings.Compare(a.Key, b.Key) })
			want = append(want, fmt.Sprint(id, count(u.NumRequestsAllowed), count(u.NumRequestsDenied)))
		}
		if err != nil || domain != m.Domain || !slices.Equal(got, want) {
			t.Errorf("%q: got %q %q, %v; want %q %q", message, domain, got, err, m.Domain, want)
		}
	})
}
