package meter

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/server/internal/callers"
)

// TestClassed wants the class of a request lowered by the header and never raised, whatever else a
// caller has, and its own labels left as they are.
func TestClassed(t *testing.T) {
	t.Parallel()
	classes := []string{"interactive", "batch", "idle"}
	for name, c := range map[string]struct {
		classes     []string
		own, header string // values of the header are separated by +; "-" for none
		want        string // the labels, or a part of the refusal
	}{
		"none":                   {classes, "", "-", "class=interactive"},
		"own":                    {classes, "class=batch,user=ann", "-", "class=batch,user=ann"},
		"none beside others":     {classes, "a=x,user=ann", "-", "a=x,class=interactive,user=ann"},
		"none, lowered":          {classes, "user=ann", "batch", "class=batch,user=ann"},
		"lowered":                {classes, "class=interactive,user=ann", "idle", "class=idle,user=ann"},
		"the same":               {classes, "class=batch", "batch", "class=batch"},
		"raised":                 {classes, "class=batch", "interactive", "400 the header Weir-Class is interactive: want one of batch, idle: the caller has batch, and a request may not be of a higher class"},
		"raised from the lowest": {classes, "class=idle", "batch", "400 the header Weir-Class is batch: want one of idle: the caller has idle"},
		"unknown":                {classes, "class=batch", "urgent", "400 the header Weir-Class is urgent: want one of batch, idle"},
		"unknown, none":          {classes, "", "Batch", "400 the header Weir-Class is Batch: want one of interactive, batch, idle"},
		"empty":                  {classes, "", "", "400 the header Weir-Class is empty: want one of interactive, batch, idle"},
		"repeated":               {classes, "", "batch+batch", "400 the header Weir-Class is repeated: want it once"},
		"own is unknown":         {classes, "class=gold", "-", "class=gold"},
		"own is unknown, lower":  {classes, "class=gold", "batch", `400 the header Weir-Class is there: want none, because the class of the caller, "gold", is none of interactive, batch, idle`},
		"no classes":             {nil, "class=gold", "-", "class=gold"},
		"no classes, none":       {nil, "user=ann", "-", "user=ann"},
		"no classes, lower":      {nil, "class=batch", "batch", "400 the header Weir-Class is there: want none, because the rules have no classes"},
	} {
		var labels []callers.Label
		for text := range strings.SplitSeq(c.own, ",") {
			if key, value, found := strings.Cut(text, "="); found {
				labels = append(labels, callers.Label{Key: key, Value: value})
			}
		}
		h := http.Header{}
		if c.header != "-" {
			h[classHeader] = strings.Split(c.header, "+")
		}
		got, err := classed(labels, c.classes, h)
		text := func(all []callers.Label) string {
			var parts []string
			for _, l := range all {
				parts = append(parts, l.Key+"="+l.Value)
			}
			return strings.Join(parts, ",")
		}
		said := text(got)
		if err != nil {
			said = "400 " + err.(*refusal).message
			if r := err.(*refusal); r.status != http.StatusBadRequest || r.code != "invalid_class" || !r.final {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if !strings.HasPrefix(said, c.want) || err == nil && said != c.want {
			t.Errorf("%s: %s, want %s", name, said, c.want)
		}
		if after := text(labels); after != c.own {
			t.Errorf("%s: the caller's labels became %s", name, after)
		}
	}
}

const ranked = `
domain: llm
classes: [interactive, batch]
models: [{model: "*", input: 0, output: 1000}]
descriptors:
  - {key: class, value: interactive, rate_limit: {name: people, requests_per_unit: 3, unit: day, algorithm: fixed_window, show: true}}
  - {key: class, value: batch, rate_limit: {name: jobs, requests_per_unit: 2, unit: day, algorithm: fixed_window, show: true}}
`

// TestClassOfRequest wants each request charged to its class, whatever a caller is known by, and
// the header removed before the provider.
func TestClassOfRequest(t *testing.T) {
	t.Parallel()
	file := people(map[string]string{"ann": "user: ann", "nightly": "user: nightly, class: batch"})
	for _, known := range []bool{true, false} {
		var forwarded atomic.Int32
		b := newBench(t, ranked, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			forwarded.Add(1)
			if _, sent := r.Header[classHeader]; sent {
				t.Errorf("the provider got %v", r.Header)
			}
			reporting(1, 1).ServeHTTP(w, r)
		}), func(o *Options) {
			if known {
				withCallers(t, file)(o)
			}
		})
		send := func(who, class, method, path string) answered {
			r := b.request(method, path, chatBody)
			if known {
				r.Header.Set("Authorization", "Bearer "+tokenOf(who))
			}
			if class != "" {
				r.Header.Set(classHeader, class)
			}
			return b.send(r)
		}
		calls := []struct {
			who, class string
			status     int
			limit      string
		}{
			{"ann", "", 200, ""},
			{"ann", "interactive", 200, ""},
			{"ann", "batch", 200, ""},
			{"ann", "urgent", 400, ""},
			{"nightly", "interactive", 400, ""},
			{"nightly", "batch", 200, ""},
			{"nightly", "", 429, "jobs"},
			{"ann", "batch", 429, "jobs"},
			{"ann", "", 200, ""},
			{"ann", "", 429, "people"},
		}
		served := int32(0)
		for _, c := range calls {
			if !known && c.who == "nightly" {
				continue
			}
			if !known && c.limit == "jobs" {
				c.status, c.limit = 200, ""
			}
			a := send(c.who, c.class, http.MethodPost, chatPath)
			if a.StatusCode != c.status || a.Header.Get("Weir-Limit") != c.limit {
				t.Errorf("%s, %q: %d %s, want %d %s", c.who, c.class, a.StatusCode, a.text, c.status, c.limit)
			}
			if c.status == http.StatusOK {
				served++
			}
		}
		if got := forwarded.Load(); got != served {
			t.Errorf("%d were forwarded, want %d", got, served)
		}
		if a := send("ann", "batch", http.MethodGet, "/v1/me"); a.StatusCode != http.StatusOK || !strings.Contains(a.text, `"class":"batch"`) || !strings.Contains(a.text, `"descriptor":"class=batch"`) {
			t.Errorf("%d %s", a.StatusCode, a.text)
		}
	}
}
