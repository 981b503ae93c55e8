package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// levelRules are budgets of a user in a team in a company, none of which admits all 60 callers.
const levelRules = `
domain: llm
models: [{model: "*", input: 0, output: 1000}]
descriptors:
  - {key: user, rate_limit: {name: user, count: usd, dollars: 0.009, unit: month, algorithm: fixed_window, time_zone: UTC}}
  - {key: team, rate_limit: {name: team, count: usd, dollars: 0.026, unit: month, algorithm: fixed_window, time_zone: UTC}}
  - {key: company, rate_limit: {name: company, count: usd, dollars: 0.05, unit: month, algorithm: fixed_window, time_zone: UTC}}
`

// TestModelLevels wants no level exceeded by 60 callers who come to two processes at once for the
// last $0.05 of their company, and all of it granted.
func TestModelLevels(t *testing.T) {
	t.Parallel()
	const people, calls = 6, 60
	token := func(i int) string { return fmt.Sprintf("the-token-of-person-%d", i) }
	file := "callers:\n"
	for i := range people {
		sum := sha256.Sum256([]byte(token(i)))
		file += fmt.Sprintf("  - {name: p%d, labels: {user: p%d, team: t%d, company: acme}, tokens: [%s], verbs: [take], domains: [llm]}\n", i, i, i%2, hex.EncodeToString(sum[:]))
	}
	callers := filepath.Join(t.TempDir(), "callers.yaml")
	if err := os.WriteFile(callers, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	store := "redis://" + testserver.StartRedis(t).Addr() + "/0"
	var addresses []string
	for range 2 {
		addresses = append(addresses, proxyWith(t, levelRules, store, "--mock", "--callers", callers, "--store-timeout", "3s").addrs["models"])
	}
	var users [people]atomic.Int64
	var done sync.WaitGroup
	for i := range calls {
		done.Go(func() {
			// Each person comes to both.
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addresses[i/people%2]+"/v1/chat/completions", strings.NewReader(`{"model":"mock-1","max_tokens":1,"messages":[]}`))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+token(i%people))
			answer, err := newClient(t).Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			text, _ := io.ReadAll(answer.Body)
			switch answer.StatusCode {
			case http.StatusOK:
				users[i%people].Add(1)
			case http.StatusTooManyRequests:
			default:
				t.Errorf("%d %s", answer.StatusCode, text)
			}
		})
	}
	done.Wait()
	teams, all := [2]int64{}, int64(0)
	for i := range users {
		n := users[i].Load()
		teams[i%2], all = teams[i%2]+n, all+n
		if n > 9 {
			t.Errorf("user %d got %d, want at most 9", i, n)
		}
	}
	if teams[0] > 26 || teams[1] > 26 || all != 50 {
		t.Errorf("the teams got %v, want at most 26 each; all got %d, want 50", teams, all)
	}
}
