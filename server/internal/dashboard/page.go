package dashboard

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/weirlimit/weir/server/internal/admin"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
)

// policy permits only the files of this package.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func (d *Dashboard) parsePages() *template.Template {
	t := template.New("pages").Funcs(template.FuncMap{"url": d.url})
	return template.Must(t.ParseFS(files, "assets/*.html"))
}

// page shows the current state; a script keeps it up to date.
func (d *Dashboard) page(w http.ResponseWriter, r *http.Request) {
	d.show(w, http.StatusOK, "page.html", map[string]any{
		"Rules": d.rulesShown(), "State": d.now(r.Context()), "Spans": spans, "Token": d.Callers != nil,
	})
}

// rulesPart shows the rules alone, for a page whose rules have changed.
func (d *Dashboard) rulesPart(w http.ResponseWriter, _ *http.Request) {
	d.show(w, http.StatusOK, "rules.html", d.rulesShown())
}

// askToken shows the login form.
func (d *Dashboard) askToken(w http.ResponseWriter, _ *http.Request, wrong string) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="weir admin"`)
	d.show(w, http.StatusUnauthorized, "login.html", map[string]string{"Wrong": wrong, "Action": loginPath})
}

func (d *Dashboard) show(w http.ResponseWriter, status int, name string, data any) {
	var text bytes.Buffer
	if err := d.pages.ExecuteTemplate(&text, name, data); err != nil {
		panic(fmt.Sprintf("dashboard: %s: %v", name, err))
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes())
}

// rulesShown is the rules in force, as the page lists them.
type rulesShown struct {
	Path, Revision, Since string
	Domains               []string
	Limits                []limitShown
	// Left is the number of limits that are not shown.
	Left int
}

type limitShown struct {
	Domain, Name, Rule, At, Limit, Algorithm, OnStoreFailure string
	Enforce                                                  string // percentage of keys; empty: all
	Budget                                                   string // that it charges; empty: one of its own
	Keep                                                     string // what it leaves to others; empty: nothing
	Unlimited, Shadow, Quota, Lease, RLQS, Trial             bool
}

// maxRules bounds the limits that a page lists.
const maxRules = 1000

func (d *Dashboard) rulesShown() *rulesShown {
	set, loaded := d.Rules(), d.Loaded()
	shown := &rulesShown{
		Path: loaded.Path, Revision: loaded.Revision, Since: loaded.At.UTC().Format(time.RFC3339), Domains: set.Domains(),
	}
	for _, r := range set.Rules() {
		all := limitsShown(r)
		fit := min(len(all), maxRules-len(shown.Limits))
		shown.Limits = append(shown.Limits, all[:fit]...)
		shown.Left += len(all) - fit
	}
	return shown
}

// limitsShown returns a rule's limits, its trial last.
func limitsShown(r *rules.Rule) []limitShown {
	rule := limitShown{
		Domain: r.Domain, Rule: r.Path, At: r.At.String(),
		Unlimited: r.Unlimited, Shadow: r.Shadow && !r.OnTrial, Quota: r.Quota, RLQS: r.RLQS, Trial: r.OnTrial, Enforce: r.Enforce(),
	}
	all := []limitShown{rule}
	if !r.Unlimited {
		all = nil
		for _, l := range r.Limits {
			shown := rule
			shown.Name, shown.Limit, shown.Algorithm = l.Name, admin.LimitText(l.Limit), l.Algorithm.String()
			if shown.Budget = l.Budget.String(); l.Keep > 0 {
				shown.Keep = config.AmountText(l.Limit.Meter, l.Keep)
			}
			if shown.Lease = l.Lease; !r.OnTrial {
				shown.OnStoreFailure = l.OnStoreFailure.String()
			}
			all = append(all, shown)
		}
	}
	if r.Trial != nil {
		all = append(all, limitsShown(r.Trial)...)
	}
	return all
}
