package httpapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
)

// A wireCase is a conversation with a server whose store is empty, and whose clock stands.
type wireCase struct {
	Name  string
	Rules string
	Steps []struct {
		Path      string
		Body      json.RawMessage
		Status    int
		Reply     map[string]any
		AdvanceMS int64 `json:"advance_ms"`
	}
}

// TestWireCases holds the server to the bodies and answers that clients are tested against,
// too.
func TestWireCases(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../clients/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ HTTP []wireCase }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.HTTP) == 0 {
		t.Fatal("no cases")
	}
	for _, test := range file.HTTP {
		t.Run(test.Name, func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock()
			if test.Rules == "" {
				test.Rules = "domain: empty\n"
			}
			h := handlerOf(t, test.Rules, Options{Taker: memengine.New(memengine.Options{Now: clock.Now})})
			for _, step := range test.Steps {
				clock.Advance(time.Duration(step.AdvanceMS) * time.Millisecond)
				if step.Path == "" {
					continue
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, step.Path, strings.NewReader(string(step.Body))))
				var got map[string]any
				if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
					t.Fatal(err)
				}
				if _, whole := step.Reply["allowed"]; !whole {
					for field := range got {
						if _, listed := step.Reply[field]; !listed {
							delete(got, field)
						}
					}
				}
				if diff := cmp.Diff(step.Reply, got); diff != "" || w.Code != step.Status {
					t.Errorf("%s %s: status %d, want %d\n%s", step.Path, step.Body, w.Code, step.Status, diff)
				}
			}
		})
	}
}
