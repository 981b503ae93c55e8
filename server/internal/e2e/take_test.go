package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/testserver"
)

type (
	// take is the body of POST /v1/take.
	take struct {
		Domain      string       `json:"domain"`
		Descriptors []descriptor `json:"descriptors"`
		Cost        int64        `json:"cost"`
		Mode        string       `json:"mode,omitempty"`
	}
	descriptor struct {
		Entries []entry `json:"entries"`
	}
	entry struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
)

// answer is what these tests want of an answer.
type answer struct {
	Allowed bool  `json:"allowed"`
	Granted int64 `json:"granted"`
	Limits  []struct {
		AtUS         int64 `json:"at_us"`
		RetryAfterMS int64 `json:"retry_after_ms"`
	} `json:"limits"`
}

// of asks for a cost under one key of the domain seeds.
func of(key string, cost int64) take {
	return take{Domain: "seeds", Descriptors: []descriptor{{Entries: []entry{{Key: key, Value: "42"}}}}, Cost: cost}
}

// newClient returns a client whose connections end with the test.
func newClient(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: connections}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// post sends one take. An error means that the answer did not arrive.
func post(ctx context.Context, client *http.Client, url string, body take) (*answer, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/take", bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
		return nil, &unexpected{resp.Status}
	}
	a := new(answer)
	if err := json.NewDecoder(resp.Body).Decode(a); err != nil {
		return nil, err
	}
	if a.Allowed != (resp.StatusCode == http.StatusOK) || len(a.Limits) != 1 {
		return nil, &unexpected{fmt.Sprintf("%s with %+v", resp.Status, *a)}
	}
	return a, nil
}

// unexpected is an answer that arrived and should not be.
type unexpected struct{ what string }

func (u *unexpected) Error() string { return "unexpected answer: " + u.what }

// TestBackToBack asks in close succession, where an implementation that names
// its entries after milliseconds, or that charges before it decides, goes wrong.
func TestBackToBack(t *testing.T) {
	t.Parallel()
	stores := map[string]func(*testing.T) string{
		"memory": func(*testing.T) string { return "memory" },
		"redis":  func(t *testing.T) string { return testserver.StartRedis(t).URL() },
	}
	upTo7 := of("rolling", 7)
	upTo7.Mode = "up_to"
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := serve(t, "testdata/rules.yaml", store(t))
			granted(t, w, repeat(15, of("log", 1)), append(repeat[int64](5, 1), make([]int64, 10)...))
			granted(t, w, repeat(3, upTo7), []int64{7, 3, 0})
		})
	}
}

func repeat[T any](n int, v T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}

// granted takes one after the other and compares what is granted.
func granted(t *testing.T, w *weir, takes []take, want []int64) {
	t.Helper()
	client := newClient(t)
	got := make([]int64, len(takes))
	for i, body := range takes {
		a, err := post(t.Context(), client, w.url(), body)
		if err != nil {
			t.Fatal(err)
		}
		got[i] = a.Granted
		if a.Allowed != (a.Granted > 0) || a.Allowed != (a.Limits[0].RetryAfterMS == 0) {
			t.Errorf("take %d contradicts itself: %+v", i, *a)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("granted (-want +got):\n%s", diff)
	}
}
