package app

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// quotaRules are rules from which Envoys lease units.
const quotaRules = `domain: shop
descriptors: [{key: a, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 40, quota: true}}]
`

// quotas opens a stream and reports a request.
func quotas(t *testing.T, app *App, ctx context.Context) quotav3.RateLimitQuotaService_StreamRateLimitQuotasClient {
	t.Helper()
	stream, err := quotav3.NewRateLimitQuotaServiceClient(dialGRPC(t, app)).StreamRateLimitQuotas(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := report(stream); err != nil {
		t.Fatal(err)
	}
	return stream
}

// report reports a request.
func report(stream quotav3.RateLimitQuotaService_StreamRateLimitQuotasClient) error {
	return stream.Send(&quotav3.RateLimitQuotaUsageReports{Domain: "shop", BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{{
		BucketId: &quotav3.BucketId{Bucket: map[string]string{"a": "1"}}, NumRequestsDenied: 1,
	}}})
}

// TestQuotas leases units of a limit to Envoys, which others share. A stop ends their streams.
func TestQuotas(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Config: rulesFor(t, quotaRules), RLQS: true})
	var streams [3]quotav3.RateLimitQuotaService_StreamRateLimitQuotasClient
	for i := range streams {
		streams[i] = quotas(t, app, t.Context())
		m, err := streams[i].Recv()
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 && (len(m.BucketAction) != 2 || m.BucketAction[1].GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket().GetMaxTokens() != 10) {
			t.Errorf("%v", m)
		}
	}
	if _, text := get(t, app, "/metrics"); !strings.Contains(text, "weir_rlqs_streams 3\n") || !strings.Contains(text, "weir_rlqs_buckets 3\n") {
		t.Error("the metrics do not count the streams")
	}
	if code, text := posted(t, app, "/v1/take", `{"domain":"shop","cost":31,"descriptors":[{"entries":[{"key":"a","value":"1"}]}]}`); code != 429 {
		t.Errorf("others may spend what is leased: %d %s", code, text)
	}
	stop(t, app)
	for _, s := range streams {
		for {
			if _, err := s.Recv(); err != nil {
				if status.Code(err) != codes.Unavailable {
					t.Error(err)
				}
				break
			}
		}
	}
}

// TestQuotasAreOff unless they are asked for.
func TestQuotasAreOff(t *testing.T) {
	t.Parallel()
	if _, err := quotas(t, start(t, Options{Config: rulesFor(t, quotaRules)}), t.Context()).Recv(); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

// TestQuotasNeedRights: a stream is for callers that may take units of its domain.
func TestQuotasNeedRights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		verbs, domains, token string
		want                  codes.Code
	}{
		{"take", "shop", tokenOf("edge"), codes.OK},
		{"peek", "shop", tokenOf("edge"), codes.PermissionDenied},
		{"take", "other", tokenOf("edge"), codes.PermissionDenied},
		{"take", "shop", "wrong", codes.Unauthenticated},
	} {
		app := start(t, Options{Config: rulesFor(t, quotaRules), RLQS: true, Callers: callersFile(t, c.verbs, c.domains)})
		_, err := quotas(t, app, metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+c.token)).Recv()
		if status.Code(err) != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestQuotasInOutage: while Redis is unreachable, leases come from the instance's local share.
func TestQuotasInOutage(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	app := start(t, Options{
		Config: rulesFor(t, strings.Replace(quotaRules, "40", "4000", 1)), RLQS: true, Store: server.URL(),
		Fallback: FallbackOptions{StoreTimeout: 500 * time.Millisecond, StoreSilence: 100 * time.Millisecond, Instances: 2},
	})
	stream := quotas(t, app, t.Context())
	leased := func() uint32 {
		t.Helper()
		for {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range m.BucketAction {
				if b := a.GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket(); b != nil {
					return b.MaxTokens
				}
			}
		}
	}
	if n := leased(); n != 1000 {
		t.Errorf("%d units from Redis", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var reporting sync.WaitGroup
	reporting.Go(func() { // as Envoy does, so that what was not spent is refunded
		for ctx.Err() == nil && report(stream) == nil {
			time.Sleep(500 * time.Millisecond)
		}
	})
	defer reporting.Wait()
	defer cancel()
	server.Kill()
	for local := false; !local; {
		leased()
		_, text := get(t, app, "/metrics")
		local = !strings.Contains(text, "weir_fallback_local_total 0\n")
	}
	if n := leased(); n > 2000 {
		t.Errorf("%d units, more than the local share", n)
	}
}
