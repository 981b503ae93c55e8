package meter

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/server/internal/models/journal"
	"github.com/weirlimit/weir/server/internal/models/ledger"
)

// charged is what a line of the journal says that a key was charged.
type charged struct {
	Key   string
	Units int64
}

// TestJournal wants a line when a request is held and one when that ends, in any way, without its
// prompt and its credential, and the same numbers as in the ledger.
func TestJournal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, err := journal.Open(journal.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	j.Start()
	t.Cleanup(func() { _ = j.Stop(context.Background()) })
	file := people(map[string]string{"ann": "user: ann, team: web, company: acme"})
	b := newBench(t, budgetRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for text, status := range map[string]int{"unknown": http.StatusNotFound, "stranger": http.StatusUnauthorized} {
			if strings.Contains(string(body), text) {
				w.WriteHeader(status)
				return
			}
		}
		fmt.Fprint(w, `{"usage":{"prompt_tokens":9,"completion_tokens":250,"prompt_tokens_details":{"cached_tokens":2}}}`)
	}), withCallers(t, file), recording(t, ledger.Options{Domain: "llm", Journal: j}))
	for _, c := range []struct {
		model        string
		most, status int
	}{{"m", 300, 200}, {"unknown", 300, 404}, {"stranger", 300, 401}, {"m", 1000, 429}, {"m", 900, 429}} {
		if a := b.as("ann", fmt.Sprintf(`{"model":"%s","max_tokens":%d,"messages":[{"role":"user","content":"a secret"}]}`, c.model, c.most)); a.StatusCode != c.status {
			t.Errorf("%v: %d %s", c, a.StatusCode, a.text)
		}
	}
	l := b.proxy.Ledger
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	names := map[string]string{}
	if err := journal.Read(dir, time.Time{}, func(line []byte) error {
		if text := string(line); strings.Contains(text, "secret") || strings.Contains(text, tokenOf("ann")) {
			t.Error(text)
		}
		var e struct {
			Event, ID, Model string
			Labels           map[string]string
			Price            struct{ Row string }
			HeldUSD          string `json:"held_usd"`
			USD              string
			Refused          int
			Charges          []charged
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		slices.SortFunc(e.Charges, func(a, b charged) int { return strings.Compare(a.Key, b.Key) })
		if names[e.ID] == "" {
			names[e.ID] = fmt.Sprint(len(names) + 1)
		}
		got = append(got, fmt.Sprint(names[e.ID], " ", e.Event, " ", e.Model, " ", e.Labels["key"], " ", e.Labels["team"], " ", e.Price.Row, " ", e.HeldUSD, " ", e.USD, " ", e.Refused, " ", e.Charges))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1 open m ann web  0.3  0 []",
		"1 settled m ann web *  0.25 0 [{llm/company=acme;company;company 250000} {llm/user=ann;user;user 250000}]",
		"2 open unknown ann web  0.3  0 []",
		"2 settled * ann web *  0 0 []",
		"3 open stranger ann web  0.3  0 []",
		"3 dropped stranger ann web    0 []",
		"4 refused *     0 2 []",
		"5 recorded       0 []",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var fromJournal, fromLedger ledger.Numbers
	month := time.Now().UTC().Format("2006-01")
	found, err := ledger.ReadJournals([]string{dir}, "llm", month, func(r *ledger.Row) { fromJournal.Add(&r.Numbers) })
	if err != nil || found != (ledger.Found{}) {
		t.Errorf("%+v, %v", found, err)
	}
	rows, err := l.Month(t.Context(), month)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		fromLedger.Add(&rows[i].Numbers)
	}
	if diff := cmp.Diff(fromJournal, fromLedger); diff != "" {
		t.Errorf("(-journal +ledger):\n%s", diff)
	}
}
