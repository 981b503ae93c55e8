package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/testserver"
)

// reply is what a call was answered, be it a decision or a problem.
type reply struct {
	status  int
	ID      string `json:"id"`
	Code    string `json:"code"`
	Granted int64  `json:"granted"`
	Limits  []struct {
		Remaining int64 `json:"remaining"`
	} `json:"limits"`
}

func (r *reply) String() string {
	if r.Code != "" {
		return fmt.Sprint(r.status, " ", r.Code)
	}
	text := fmt.Sprint(r.status, " ", r.Granted)
	for _, l := range r.Limits {
		text += fmt.Sprint(" | ", l.Remaining)
	}
	return text
}

// ask posts a body about the key model of the domain seeds.
func ask(ctx context.Context, client *http.Client, url, rest string) (*reply, error) {
	body := `{"domain":"seeds","descriptors":[{"entries":[{"key":"model","value":"42"}]}]` + rest + `}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	r := &reply{status: resp.StatusCode}
	return r, json.NewDecoder(resp.Body).Decode(r)
}

// TestHoldThenSettle walks a call of a model through two hosts of a service: one
// estimates and holds, another settles, and repeats of either change nothing.
func TestHoldThenSettle(t *testing.T) {
	t.Parallel()
	redis := testserver.StartRedis(t).URL()
	for name, stores := range map[string][2]string{"redis": {redis, redis}, "memory": {"memory"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := serve(t, "testdata/rules.yaml", stores[0])
			second := first
			if stores[1] != "" {
				second = serve(t, "testdata/rules.yaml", stores[1])
			}
			walk(t, first, second)
		})
	}
}

// walk makes the calls of a history, the second host those that settle.
func walk(t *testing.T, first, second *weir) {
	t.Helper()
	client := newClient(t)
	made := ""
	for i, step := range []struct {
		host             *weir
		call, rest, want string
	}{
		{first, "take", `,"cost":100,"id":"a","hold_ms":600000`, "200 100 | 900 | 0"},
		{first, "take", `,"cost":100,"id":"a","hold_ms":600000`, "200 100 | 900 | 0"},
		{first, "take", `,"cost":50,"id":"b","hold_ms":600000`, "429 0 | 900 | 0"},
		{second, "renew", `,"id":"a"`, "200 0 | 900 | 0"},
		{second, "settle", `,"cost":40,"id":"a"`, "200 40 | 960 | 1"},
		{second, "settle", `,"cost":40,"id":"a"`, "200 40 | 960 | 1"},
		{first, "settle", `,"cost":41,"id":"a"`, "409 settled"},
		{first, "take", `,"cost":7,"id":"a","hold_ms":600000`, "409 id_reused"},
		{first, "take", `,"cost":60,"hold_ms":600000`, "200 60 | 900 | 0"},
		{second, "release", `,"id":%q`, "200 60 | 960 | 1"},
		{first, "settle", `,"cost":1,"id":%q`, "409 released"},
		{first, "refund", `,"cost":1,"id":"nobody's"`, "404 unknown_id"},
	} {
		rest := step.rest
		if strings.Contains(rest, "%q") {
			rest = fmt.Sprintf(rest, made)
		}
		r, err := ask(t.Context(), client, step.host.url()+"/v1/"+step.call, rest)
		if err != nil {
			t.Fatal(err)
		}
		if r.ID != "" {
			made = r.ID
		}
		if diff := cmp.Diff(step.want, r.String()); diff != "" {
			t.Errorf("%d %s%s (-want +got):\n%s", i, step.call, rest, diff)
		}
	}
}
