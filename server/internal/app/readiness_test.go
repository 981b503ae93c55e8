package app

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/testserver"
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

// TestStartTogether: of instances that start at the same time, each knows all others when it is
// ready. An outage at that moment grants the limit once in all, and what rounding adds.
func TestStartTogether(t *testing.T) {
	t.Parallel()
	const instances, count = 8, 300
	redis := testserver.StartRedis(t)
	rules := rulesFor(t, fmt.Sprintf("domain: shop\ndescriptors:\n  - {key: user, rate_limit: {algorithm: gcra, unit: year, requests_per_unit: %d}}\n", count))
	apps := make([]*App, instances)
	var starting sync.WaitGroup
	for i := range apps {
		var err error
		if apps[i], err = New(Options{
			Config: rules, HTTP: "127.0.0.1:0", GRPC: Off, Store: redis.URL(), Timeout: writeTimeout - time.Second,
			Fallback: FallbackOptions{StoreSilence: 10 * time.Second, StoreTimeout: 10 * time.Second},
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stop(t, apps[i]) })
	}
	for _, app := range apps {
		starting.Go(func() {
			if err := app.Start(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	for _, app := range apps {
		eventually(t, func() error {
			if status, text := get(t, app, "/readyz"); status != http.StatusOK {
				return errors.New(text)
			}
			return nil
		})
	}
	redis.Kill()
	granted := 0
	for _, app := range apps {
		if known := app.engine.instances(); known != instances {
			t.Errorf("an instance that is ready knows %d of %d", known, instances)
		}
		for {
			status, text := get(t, app, "/v1/auth?domain=shop&user=a")
			if status == http.StatusTooManyRequests {
				break
			}
			if granted++; status != http.StatusNoContent || granted > 2*instances*count {
				t.Fatalf("%d %s", status, text)
			}
		}
	}
	if granted > count+instances {
		t.Errorf("%d granted of %d", granted, count)
	}
}
