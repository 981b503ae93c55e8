package app

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

const failureRules = `domain: shop
calls: {on_store_failure: deny, names: {open: {on_store_failure: allow}}}
descriptors:
  - {key: theirs, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: local, rate_limit: {algorithm: gcra, unit: hour, requests_per_unit: 4}}
  - {key: allow, rate_limit: {algorithm: gcra, unit: hour, requests_per_unit: 1, on_store_failure: allow}}
  - {key: closed, rate_limit: {algorithm: gcra, unit: hour, requests_per_unit: 100, on_store_failure: deny}}
  - {key: error, rate_limit: {algorithm: gcra, unit: hour, requests_per_unit: 100, on_store_failure: error}}
`

// rulesFor returns a file with rules.
func rulesFor(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func askRLS(t *testing.T, app *App, key string) string {
	t.Helper()
	answer, err := rateLimit(t.Context(), dialGRPC(t, app), "shop", descriptor(key, "a"))
	if err != nil {
		return status.Code(err).String()
	}
	return answer.OverallCode.String()
}

// TestOnStoreFailure takes the store away and asks at every listener.
func TestOnStoreFailure(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	file := rulesFor(t, failureRules)
	strict := start(t, Options{Store: server.URL(), Config: file, RESP: "127.0.0.1:0", Fallback: FallbackOptions{Instances: 2}})
	lenient := start(t, Options{Store: server.URL(), Config: file, Fallback: FallbackOptions{OnStoreFailure: "allow"}})
	for _, app := range []*App{strict, lenient} {
		testserver.Eventually(t, "the server is ready", func() bool {
			status, body := details(t, app)
			return status == http.StatusOK && strings.Contains(body, `"state":"healthy"`)
		})
	}
	server.Kill()
	for key, want := range map[string]struct {
		http int
		rls  string
	}{
		"theirs": {http.StatusServiceUnavailable, codes.Unavailable.String()},
		"allow":  {http.StatusNoContent, "OK"},
		"closed": {http.StatusTooManyRequests, "OVER_LIMIT"},
		"error":  {http.StatusServiceUnavailable, codes.Unavailable.String()},
	} {
		for range 3 {
			if code, body := get(t, strict, "/v1/auth?domain=shop&"+key+"=a"); code != want.http {
				t.Errorf("%s: %d %s", key, code, body)
			}
		}
		if got := askRLS(t, strict, key); got != want.rls {
			t.Errorf("%s: %s, want %s", key, got, want.rls)
		}
	}
	for i, want := range []int{204, 204, 429} {
		if code, body := get(t, strict, "/v1/auth?domain=shop&local=a"); code != want {
			t.Errorf("local, call %d: %d %s; want half of the limit", i, code, body)
		}
	}
	answers := say(t, strict, strings.Repeat("CL.THROTTLE a 3 4 3600\r\n", 3))
	if granted, refused := strings.Count(answers, "*5\r\n:0\r\n"), strings.Count(answers, "*5\r\n:1\r\n"); granted != 2 || refused != 1 {
		t.Errorf("over RESP: %q; want half of the limit", answers)
	}
	for domain, want := range map[string]string{"": "200 200 429 429", "default": "200 200 429 429", "shop": "429 429 429 429"} {
		var got []string
		for range 4 {
			code, _ := posted(t, strict, "/v1/take", `{"domain":"`+domain+`","limits":[{"key":"of `+domain+`","limit":"4/h","name":"n"}]}`)
			got = append(got, strconv.Itoa(code))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("limits in calls to %q: %s, want %s", domain, got, want)
		}
	}
	answers = say(t, strict, strings.Repeat("WEIR.TAKE a 4/h\r\n", 3)+"WEIR.TAKE a open=4/h IN shop\r\nWEIR.TAKE b 4/h ID i\r\nWEIR.RELEASE b 4/h ID i\r\n")
	if granted, refused := strings.Count(answers, "*11\r\n:1\r\n"), strings.Count(answers, "*11\r\n:0\r\n"); granted != 5 || refused != 1 || !strings.Contains(answers, "+fallback\r\n") || !strings.Contains(answers, "+fail_open\r\n") || strings.Contains(answers, "-") || !strings.HasSuffix(answers, "+OK\r\n") {
		t.Errorf("limits in calls over RESP: %q", answers)
	}
	if got := askRLS(t, lenient, "theirs"); got != "OK" {
		t.Errorf("with --on-store-failure allow: %s", got)
	}
	if status, body := details(t, strict); status != http.StatusOK || !strings.Contains(body, `"state":"degraded"`) || !strings.Contains(body, `"name":"store","ok":false,"detail":"the store 127.0.0.1:`) {
		t.Errorf("readyz: %d %s", status, body)
	}
	server.Restart()
	testserver.Eventually(t, "the store is back and asked", func() bool {
		code, _ := get(t, strict, "/v1/auth?domain=shop&theirs=a")
		return code == http.StatusNoContent
	})
}

func TestFallbackOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]FallbackOptions{
		"store timeout":    {StoreTimeout: -1},
		"store silence":    {StoreSilence: -1},
		"on store failure": {OnStoreFailure: "fail"},
		"instances":        {Instances: -1},
	} {
		wantInvalid(t, want, Options{Fallback: o}, want, "")
	}
}

// TestPolicyOfOverriddenKeys: a key that has another limit for a while answers as
// its rule says, of two domains with rules alike its own.
func TestPolicyOfOverriddenKeys(t *testing.T) {
	t.Parallel()
	file := rulesFor(t, failureRules)
	app, err := New(Options{Store: "redis://127.0.0.1:1", Config: file})
	if err != nil {
		t.Fatal(err)
	}
	defer app.Stop(t.Context())
	policy := app.engine.policy()
	for _, r := range app.rules.Load().Rules() {
		own := r.Limits[0].Limit
		other := *own
		c := weir.Charge{Key: "shop/" + r.Entries[0].Key + "=a;x", Limit: own}
		want := policy(&c)
		if c.Limit = &other; policy(&c) != want {
			t.Errorf("%s: %v, by its rule %v", r.Path, policy(&c), want)
		}
	}
	if got := fmt.Sprint(policy(&weir.Charge{Key: "cl.throttle;k", Limit: new(weir.Limit)})); got != "0" {
		t.Errorf("CL.THROTTLE: %s", got)
	}
}
