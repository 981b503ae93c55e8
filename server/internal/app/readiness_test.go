package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testserver"
)

// TestReadinessKeepsDetails: rules that cannot be read are told by name to everybody,
// and what stands in which file to those alone who show a token.
func TestReadinessKeepsDetails(t *testing.T) {
	t.Parallel()
	rules := rulesFor(t, failureRules)
	app := start(t, Options{Config: rules, HTTPTokenFile: passwordFile(t, oldToken)})
	replace(t, rules, "domain: shop\nwrong: here\n")
	app.Reload()
	testserver.Eventually(t, "the wrong rules are noticed", func() bool { return app.rules.err() != nil })
	d := newDescribed(t, app)
	for authorization, told := range map[string]bool{"": false, "Bearer " + newToken: false, "Bearer " + oldToken: true, basicOf("weir", oldToken): true} {
		d.header.Set("Authorization", authorization)
		got, text := d.call("GET", "/readyz", "")
		if got.StatusCode != http.StatusOK || !strings.Contains(text, `{"name":"rules","ok":false`) {
			t.Errorf("%q: %d %s", authorization, got.StatusCode, text)
		}
		if strings.Contains(text, "wrong") != told || strings.Contains(text, "rules.yaml") != told {
			t.Errorf("%q reads %s", authorization, text)
		}
	}
	if _, text := details(t, app); !strings.Contains(text, "rules.yaml") {
		t.Errorf("administrators read %s", text)
	}
}

// TestReadinessDuringAnOutage: the server says that the store is unreachable and why, also
// while nobody calls, in time and without taking itself out of service.
func TestReadinessDuringAnOutage(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin, end func(*testserver.Redis)
		cause      string
	}{
		"killed": {(*testserver.Redis).Kill, (*testserver.Redis).Restart, ""},
		"hung":   {(*testserver.Redis).Pause, (*testserver.Redis).Resume, "no reply for "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := testserver.StartRedis(t)
			app := start(t, Options{Store: redis.URL(), Fallback: FallbackOptions{StoreSilence: DefaultStoreSilence}})
			if status, body := get(t, app, "/readyz"); status != http.StatusOK || !strings.Contains(body, `"state":"healthy"`) || !strings.Contains(body, `{"name":"store","ok":true}`) {
				t.Fatalf("readyz: %d %s", status, body)
			}
			fault.begin(redis)
			for i := range 8 {
				begun := time.Now()
				status, body := get(t, app, "/readyz")
				if took := time.Since(begun); took > 10*checkPatience {
					t.Errorf("look %d took %v", i, took)
				}
				if status != http.StatusOK || !strings.Contains(body, `"ready":true,"state":"degraded"`) || !strings.Contains(body, `"name":"store","ok":false,"detail":"`) || strings.Contains(body, `"store settings","ok":true`) {
					t.Errorf("look %d: %d %s", i, status, body)
				}
				if i < 7 {
					continue
				}
				if want := `"detail":"unreachable since `; !strings.Contains(body, want) || strings.Contains(body, "127.0.0.1") {
					t.Errorf("everybody reads %s, want %q and no address", body, want)
				}
				if _, text := details(t, app); !strings.Contains(text, "the store 127.0.0.1:") || !strings.Contains(text, " is unreachable since ") || !strings.Contains(text, fault.cause) {
					t.Errorf("administrators read %s, want the cause %q", text, fault.cause)
				}
			}
			if status, text := get(t, app, "/metrics"); status != http.StatusOK || !strings.Contains(text, "\nweir_store_unreachable 1\n") {
				t.Errorf("metrics: %d, want weir_store_unreachable 1", status)
			}
			fault.end(redis)
			eventually(t, func() error {
				status, body := get(t, app, "/readyz")
				if status != http.StatusOK || !strings.Contains(body, `"state":"healthy"`) {
					return fmt.Errorf("not healthy again: %d %s", status, body)
				}
				return nil
			})
		})
	}
}
