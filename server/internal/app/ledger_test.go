package app

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/server/internal/models/journal"
)

const alertRules = `domain: llm
models: [{model: "*", input: 0, output: 1000}]
descriptors: [{key: user, rate_limit: {name: user, count: usd, dollars: 1, unit: month, algorithm: fixed_window, time_zone: UTC, alert: [1%]}}]
`

// labelled is a file of callers in which edge has labels.
func labelled(t *testing.T) string {
	t.Helper()
	return passwordFile(t, strings.ReplaceAll(readFile(t, callersFile(t, "take", "llm")), "{name: edge,", "{name: edge, labels: {user: ann, team: web},"))
}

// TestAlerted wants alerts of the rules to reach the webhook, signed, and their counts the metrics.
func TestAlerted(t *testing.T) {
	t.Parallel()
	got := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("Webhook-Signature")[:3] + string(text)
	}))
	t.Cleanup(hook.Close)
	secret := passwordFile(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	app := start(t, Options{
		Config: rulesFor(t, alertRules), Callers: labelled(t), Admin: AdminOptions{Address: "127.0.0.1:0"},
		Models: ModelOptions{Address: "127.0.0.1:0", Mock: true, Ledger: true, AlertWebhook: hook.URL, AlertSecretFile: secret},
	})
	for range 3 {
		if status, text := askModel(t, app, "/v1/chat/completions", "Authorization: Bearer "+tokenOf("edge")); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	select {
	case text := <-got:
		if !strings.HasPrefix(text, `v1,{"text":"ann has used 1 % of $1 a month (user)"`) {
			t.Error(text)
		}
	case <-time.After(time.Minute):
		t.Fatal("the alert does not come")
	}
	eventually(t, func() error {
		_, text := send(t, app, "admin", "GET", "/metrics", "", "Authorization: Bearer "+tokenOf("watch"))
		if !strings.Contains(text, "\nweir_alerts_delivered_total 1\n") || !strings.Contains(text, "\nweir_models_ledger_waiting 0\n") {
			return fmt.Errorf("%d bytes of metrics lack it", len(text))
		}
		return nil
	})
}

// TestAlertSettings wants settings refused that get nobody an alert, and a line about alerts that
// nobody gets, at the start and with new rules.
func TestAlertSettings(t *testing.T) {
	t.Parallel()
	secret := passwordFile(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	const hook = "https://hooks.example/secret"
	for name, c := range map[string]struct {
		ModelOptions
		field, want string
	}{
		"no URL":                     {ModelOptions{Ledger: true, AlertWebhook: "hooks.example/secret"}, "alert webhook", "https://HOST"},
		"no ledger":                  {ModelOptions{AlertWebhook: hook}, "alert webhook", "none without a ledger"},
		"a secret for nobody":        {ModelOptions{Ledger: true, AlertSecretFile: secret}, "alert secret file", "none without --alert-webhook"},
		"a secret of another scheme": {ModelOptions{Ledger: true, AlertWebhook: hook, AlertSecretFile: passwordFile(t, "secret")}, "alert secret file", "whsec_"},
		"a journal of nothing":       {ModelOptions{Journal: "journal"}, "journal", "none without a ledger"},
		"no time zone":               {ModelOptions{Ledger: true, LedgerZone: "Europe/Berlinn"}, "ledger zone", "such as Europe/Berlin"},
		"the zone of the machine":    {ModelOptions{Ledger: true, LedgerZone: "Local"}, "ledger zone", "such as Europe/Berlin"},
	} {
		c.ModelOptions.Address, c.ModelOptions.Mock = "127.0.0.1:0", true
		o := Options{Config: rulesFor(t, alertRules), Callers: labelled(t), Models: c.ModelOptions}
		wantInvalid(t, name, o, c.field, c.want)
		if _, err := New(o); strings.Contains(err.Error(), "/secret\"") {
			t.Errorf("%s: %v", name, err)
		}
	}
	log, reloaded, config := new(lines), make(chan error, 1), rulesFor(t, strings.Replace(alertRules, ", alert: [1%]", "", 1))
	app := start(t, Options{
		Config: config, Callers: labelled(t), Reloaded: func(err error) { reloaded <- err }, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Models: ModelOptions{Address: "127.0.0.1:0", Mock: true, Ledger: true},
	})
	const line = "the rules have alerts, and nobody gets them"
	if strings.Contains(log.String(), line) {
		t.Error(log.String())
	}
	if err := os.WriteFile(config, []byte(alertRules), 0o600); err != nil {
		t.Fatal(err)
	}
	app.Reload()
	if err := <-reloaded; err != nil || strings.Count(log.String(), line) != 1 {
		t.Errorf("%v %s", err, log.String())
	}
}

// TestJournalFolder wants the journal to be written, its counts among the metrics, a second process
// refused, and the folder free again after a stop.
func TestJournalFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journal")
	o := Options{
		Config: rulesFor(t, alertRules), Callers: labelled(t), Admin: AdminOptions{Address: "127.0.0.1:0"},
		Models: ModelOptions{Address: "127.0.0.1:0", Mock: true, Ledger: true, Journal: dir},
	}
	app := start(t, o)
	if status, text := askModel(t, app, "/v1/chat/completions", "Authorization: Bearer "+tokenOf("edge")); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	if _, text := send(t, app, "admin", "GET", "/metrics", "", "Authorization: Bearer "+tokenOf("watch")); !strings.Contains(text, "\nweir_models_journal_failed_total 0\n") {
		t.Errorf("%d bytes of metrics lack it", len(text))
	}
	wantInvalid(t, "a second process", o, "journal", "of this process alone")
	if err := app.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var events []string
	if err := journal.Read(dir, time.Time{}, func(line []byte) error {
		_, event, _ := strings.Cut(string(line), `"event":"`)
		event, _, _ = strings.Cut(event, `"`)
		events = append(events, event)
		return nil
	}); err != nil || strings.Join(events, " ") != "open settled recorded" {
		t.Errorf("%v, %v", events, err)
	}
	again := start(t, o)
	if err := again.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
