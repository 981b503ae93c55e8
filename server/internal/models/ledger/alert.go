package ledger

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/config"
)

const (
	// claimTime is for how long one instance has an alert to itself, and postTime, which is less, how
	// long the webhook may take.
	claimTime = 10 * time.Second
	postTime  = 5 * time.Second
	// pollTime is how often an instance looks for alerts of others.
	pollTime = time.Second
	// keepAlerts is how long an alert is tried.
	keepAlerts = 24 * time.Hour
)

// An alert is one that is due.
type alert struct {
	id       string // the same at each attempt
	age      time.Duration
	used     int64
	percent  int
	count    int64
	about    About
	unusable bool // nobody can read it
}

// readAlert reads an alert of the outbox, see record.lua.
func readAlert(id, text string, now time.Time) *alert {
	a := &alert{id: id}
	recorded := int64(0)
	n, err := fmt.Sscan(text, &recorded, &a.used, &a.percent, &a.count)
	if parts := strings.SplitN(text, " ", 5); err == nil && n == 4 && len(parts) == 5 {
		err = json.Unmarshal([]byte(parts[4]), &a.about)
	} else {
		err = errMonth
	}
	a.age, a.unusable = now.Sub(time.Unix(recorded, 0)), err != nil
	return a
}

// message is the body of an alert.
type message struct {
	Text       string `json:"text"`
	Limit      string `json:"limit"`
	Descriptor string `json:"descriptor"`
	Percent    int    `json:"percent"`
	Count      string `json:"count"`
	Used       *int64 `json:"used,omitempty"`
	Of         *int64 `json:"of,omitempty"`
	UsedUSD    string `json:"used_usd,omitempty"`
	OfUSD      string `json:"of_usd,omitempty"`
	ResetsAt   string `json:"resets_at"`
}

// body returns what is posted: the same bytes at each attempt.
func (a *alert) body() []byte {
	about := &a.about
	_, who, _ := strings.Cut(about.Descriptor, "=")
	amount := config.AmountText(about.Meter, a.count)
	if about.Meter != config.MeterUSD {
		amount += " " + about.Meter
	}
	text := fmt.Sprintf("%s has used %d %% of %s a %s (%s)", who, a.percent, amount, about.Period, about.Name)
	if a.percent == 100 {
		text = fmt.Sprintf("%s has used up %s a %s (%s)", who, amount, about.Period, about.Name)
	}
	m := message{
		Text: text, Limit: about.Name, Descriptor: about.Descriptor, Percent: a.percent, Count: about.Meter,
		ResetsAt: time.Unix(about.Ends, 0).UTC().Format(time.RFC3339),
	}
	if about.Meter == config.MeterUSD {
		m.UsedUSD, m.OfUSD = config.DollarsText(a.used), config.DollarsText(a.count)
	} else {
		m.Used, m.Of = &a.used, &a.count
	}
	body := new(bytes.Buffer)
	encoder := json.NewEncoder(body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(&m); err != nil {
		panic(err) // It is made of texts and numbers.
	}
	return body.Bytes()
}

// webhookID returns the ID under which the webhook sees the alert.
func (a *alert) webhookID() string {
	sum := sha256.Sum256([]byte(a.id))
	return "alert_" + hex.EncodeToString(sum[:16])
}

const secretPrefix = "whsec_"

// ParseSecret reads a secret of Standard Webhooks: whsec_ and 24 to 64 bytes in Base64. Empty: nil,
// for none. The error is a [*weir.InvalidError], which does not repeat the secret.
func ParseSecret(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	coded, found := strings.CutPrefix(text, secretPrefix)
	secret, err := base64.StdEncoding.DecodeString(coded)
	if !found || err != nil || len(secret) < 24 || len(secret) > 64 {
		return nil, &weir.InvalidError{Field: "alert secret file", Value: "no secret", Want: secretPrefix + " and 24 to 64 bytes in Base64"}
	}
	return secret, nil
}

// signature signs a message as Standard Webhooks does.
func signature(secret []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte(id + "." + timestamp + ".")) // A hash takes everything.
	_, _ = mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// deliver delivers alerts until the ledger stops.
func (l *Ledger) deliver() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l.running.Go(func() { <-l.stop; cancel() })
	client := &http.Client{
		Timeout: postTime,
		// The target of a redirect would be asked without the body.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-timer.C:
		case <-l.alerted:
		}
		for ctx.Err() == nil && l.deliverOne(ctx, client) {
		}
		timer.Reset(pollTime)
	}
}

// deliverOne delivers the alert that is due first, and reports whether there was one.
func (l *Ledger) deliverOne(ctx context.Context, client *http.Client) bool {
	calling, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	a, err := l.book.claim(calling, claimTime)
	if err != nil && ctx.Err() == nil {
		l.warn("alerts cannot be read", "error", err)
	}
	if a == nil {
		return false
	}
	if a.unusable || a.age > keepAlerts {
		l.Observer.Dropped()
		l.Logger.Error("an alert is dropped: the webhook did not accept it for 24 hours", "id", a.webhookID(), "limit", a.about.Name, "descriptor", a.about.Descriptor, "percent", a.percent)
	} else if err := l.post(ctx, client, a); err != nil {
		if ctx.Err() == nil {
			l.Observer.Failed()
			l.warn("an alert was not accepted, and is tried again", "id", a.webhookID(), "error", err)
		}
		return true // It is due again when the claim ends.
	} else {
		l.Observer.Delivered()
	}
	calling, cancel = context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	if err := l.book.remove(calling, a.id); err != nil {
		l.warn("an alert that was accepted cannot be removed: it will come again under its ID", "id", a.webhookID(), "error", err)
	}
	return true
}

// post posts an alert to the webhook. The error does not repeat the URL, which may be a secret.
func (l *Ledger) post(ctx context.Context, client *http.Client, a *alert) error {
	body := a.body()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.Webhook, bytes.NewReader(body))
	if err != nil {
		return errors.New("the webhook has no URL")
	}
	id, now := a.webhookID(), strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", now)
	if l.Secret != nil {
		r.Header.Set("Webhook-Signature", signature(l.Secret, id, now, body))
	}
	answer, err := client.Do(r)
	if failed := new(url.Error); errors.As(err, &failed) {
		return failed.Err
	}
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // It only lets the connection be used again.
	_ = answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the webhook answered %d", answer.StatusCode)
	}
	return nil
}
