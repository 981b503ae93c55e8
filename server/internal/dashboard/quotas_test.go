package dashboard_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/app"
)

// TestLeases shows which Envoy holds which lease.
func TestLeases(t *testing.T) {
	t.Parallel()
	addr := testserver.FreeAddr(t)
	b, s := open(t), serveRules(t, "domain: edge\ndescriptors: [{key: route, rate_limit: {algorithm: gcra, requests_per_unit: 400, unit: day, quota: true}}]", func(o *app.Options) {
		o.GRPC, o.RLQS = addr, true
	})
	b.scheme("light")
	b.do(chromedp.EmulateViewport(1200, 700), chromedp.Navigate(s.admin+"/"))
	b.until(`document.getElementById("live").textContent === "live" && document.getElementById("leases-card").hidden`)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := quotav3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reports := &quotav3.RateLimitQuotaUsageReports{Domain: "edge"}
	for _, bucket := range []map[string]string{{"route": "checkout"}, {"none": "<b>"}} {
		reports.BucketQuotaUsages = append(reports.BucketQuotaUsages, &quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{BucketId: &quotav3.BucketId{Bucket: bucket}, NumRequestsDenied: 1})
	}
	if err := stream.Send(reports); err != nil {
		t.Fatal(err)
	}
	cells := `[...document.querySelectorAll("#leases tr")].map((r) => [...r.children].slice(0, 3).map((c) => c.innerText.replace(/127.0.0.1:\d+/, "Envoy").replace(/\d+( …)?$/, "n").trim()).join(", ")).join("; ")`
	b.until(cells + ` === "edge none=<b>, Envoy, no rule; edge route=checkout, Envoy, n"`)
	if found := b.text(essentials); found != "" {
		t.Error(found)
	}
	b.do(chromedp.EmulateViewport(320, 700))
	b.until(`innerWidth === 320 && document.documentElement.scrollWidth <= innerWidth`)
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	b.until(`document.getElementById("leases-card").hidden`)
	if said := b.complaints(); len(said) > 0 {
		t.Errorf("the browser says %q", said)
	}
}
