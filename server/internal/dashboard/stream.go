package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/traffic"
)

const (
	// maxStreams bounds the number of open pages.
	maxStreams = 16
	// pace is the interval between messages to a page.
	pace = time.Second
	// maxRefusals is the number of refusals that a page gets per second, heldRefusals the
	// number that can wait for it.
	maxRefusals  = 50
	heldRefusals = 256
	// sendTimeout is how long a browser may take to read one message.
	sendTimeout = 5 * time.Second
)

// A stream keeps one page up to date.
type stream struct {
	*Dashboard
	view   view
	w      http.ResponseWriter
	writer *http.ResponseController
	sub    *traffic.Subscription
	missed uint64 // refusals that were not shown
}

// events streams the state as server-sent events until the browser disconnects, is too
// slow or loses its session or its rights.
func (d *Dashboard) events(w http.ResponseWriter, r *http.Request) {
	view, err := parseView(r.URL.Query())
	if err != nil {
		(&problem.Document{Status: http.StatusBadRequest, Field: err.Path(), Detail: err.Error()}).Write(w, r)
		return
	}
	defer d.streams.Add(-1)
	if d.streams.Add(1) > maxStreams {
		busy(w, r)
		return
	}
	sub, subErr := d.Traffic.Subscribe(heldRefusals)
	if subErr != nil {
		busy(w, r)
		return
	}
	defer sub.Close()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	// Proxies must not buffer the stream.
	h.Set("X-Accel-Buffering", "no")
	s := &stream{Dashboard: d, view: view, w: w, writer: http.NewResponseController(w), sub: sub}
	// The server's deadlines are for calls that are answered at once.
	if s.writer.SetReadDeadline(time.Time{}) == nil {
		s.run(r)
	}
}

func busy(w http.ResponseWriter, r *http.Request) {
	(&problem.Document{
		Status: http.StatusServiceUnavailable, Code: "busy", Detail: fmt.Sprintf("%d dashboards are open already", maxStreams),
	}).Write(w, r)
}

func (s *stream) run(r *http.Request) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for s.send(r.Context()) == nil {
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
		if !s.stillAdmits(r) {
			return
		}
	}
}

// stillAdmits reports whether the sender's token, certificate or session is still valid, and may
// still read.
func (d *Dashboard) stillAdmits(r *http.Request) bool {
	if d.Callers == nil {
		return true
	}
	shown := callers.FromRequest(r)
	who, known := d.Callers.Recall(shown)
	if !known && !shown.Shown {
		who, known = d.Admits(r)
	}
	return known && who.Still(callers.AdminRead, callers.AllDomains)
}

// send sends the state. The error says that the browser did not take it.
func (s *stream) send(ctx context.Context) error {
	state := s.now(ctx)
	state.Chart = s.view.chart(s.Traffic)
	state.Refusals, state.Missed = s.refusals()
	text, err := json.Marshal(state)
	if err != nil {
		panic(fmt.Sprintf("dashboard: state does not marshal: %v", err))
	}
	if err := s.writer.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.w, "data: %s\n\n", text); err != nil {
		return err
	}
	return s.writer.Flush()
}

// refusals returns the latest refusals since the last call, and the total number of those
// that were not shown.
func (s *stream) refusals() ([]refusal, uint64) {
	waiting := len(s.sub.Refusals())
	shown := make([]refusal, 0, min(waiting, maxRefusals))
	for i := range waiting {
		r := <-s.sub.Refusals()
		if waiting-i > maxRefusals {
			s.missed++
			continue
		}
		shown = append(shown, s.refusal(&r))
	}
	return shown, s.missed + s.sub.Missed()
}
