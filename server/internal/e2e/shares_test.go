package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testserver"
)

const (
	connections = 64

	// The budget of testdata/shares.yaml.
	sharedCount, sharedBurst = 200, 100

	sharesOutage = 3 * time.Second
	// drains is longer than the budget takes to drain once its store has recorded an outage.
	drains = 2*time.Second*sharedBurst/sharedCount + 2*time.Second
)

// TestShares has 64 connections to two processes share a budget in one Redis, through an
// outage of it. A team is never refused what its own limit has room for, but while the budget
// drains after the outage. And in no second do both processes grant more than the budget:
// neither of what Redis decides, nor of their local shares.
func TestShares(t *testing.T) {
	t.Parallel()
	store := testserver.StartRedis(t)
	s := &sharing{t: t, client: newClient(t)}
	for i := range s.servers {
		s.servers[i] = serve(t, "testdata/shares.yaml", store.URL(), "--instances", fmt.Sprint(len(s.servers)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for i := range connections {
		team, pause := "others", 20*time.Millisecond
		switch i / 2 {
		case 0, 1: // four of them, each with a little less than a quarter of the guarantee
			team, pause = "web", 4*time.Second/60*11/10
		case 2, 3:
			team, pause = "ads", 4*time.Second/40*11/10
		}
		clients.Go(func() { s.ask(ctx, s.servers[i%2], team, pause) })
	}
	s.until(func(g *tally) bool { return g.store > sharedBurst+sharedCount })
	store.Pause()
	s.until(func(g *tally) bool { return g.local > sharedBurst })
	time.Sleep(sharesOutage) // the outage lasts
	store.Resume()
	back := time.Now()
	s.until(func(g *tally) bool { return time.Since(back) > 2*drains && time.Since(g.lastLocal) > drains })
	cancel()
	clients.Wait()
	s.judge()
}

type sharing struct {
	t       *testing.T
	client  *http.Client
	servers [2]*weir

	mu      sync.Mutex
	answers []sharedAnswer
	granted tally
}

// A tally is how many units were granted, and when the last local share was.
type tally struct {
	store, local int
	lastLocal    time.Time
}

// A sharedAnswer is the answer to one take.
type sharedAnswer struct {
	Allowed bool `json:"allowed"`
	Limits  []struct {
		Remaining int64  `json:"remaining"`
		AtUS      int64  `json:"at_us"`
		Source    string `json:"source"`
	} `json:"limits"`

	team string
	came time.Time
}

// local reports whether a process decided by itself.
func (a *sharedAnswer) local() bool { return a.source() == "fallback" }

// source is that of the first limit that was evaluated.
func (a *sharedAnswer) source() string {
	for _, l := range a.Limits {
		if l.Source != "none" {
			return l.Source
		}
	}
	return ""
}

func (a *sharedAnswer) at() (us int64) {
	for _, l := range a.Limits {
		us = max(us, l.AtUS)
	}
	return us
}

// hadRoom reports whether the team's own limit had room for the take.
func (a *sharedAnswer) hadRoom() bool { return a.team != "others" && a.Limits[0].Remaining > 0 }

// until waits until something holds of what was granted.
func (s *sharing) until(holds func(*tally) bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		done := holds(&s.granted)
		s.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("not within a minute: %+v", s.granted)
		}
	}
}

// ask takes one unit after the other.
func (s *sharing) ask(ctx context.Context, w *weir, team string, pause time.Duration) {
	body := fmt.Sprintf(`{"domain":"shared","descriptors":[{"entries":[{"key":"team","value":%q}]}]}`, team)
	for ctx.Err() == nil {
		a := sharedAnswer{team: team}
		resp, err := s.client.Post(w.url()+"/v1/take", "application/json", strings.NewReader(body))
		if err != nil {
			s.t.Error(err)
			return
		}
		err = json.NewDecoder(resp.Body).Decode(&a)
		_ = resp.Body.Close()
		if err != nil || len(a.Limits) == 0 {
			s.t.Errorf("%s: %v, %+v", resp.Status, err, a)
			return
		}
		a.came = time.Now()
		s.note(a)
		time.Sleep(pause)
	}
}

func (s *sharing) note(a sharedAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, a)
	switch {
	case a.local():
		s.granted.lastLocal = a.came
		if a.Allowed {
			s.granted.local++
		}
	case a.Allowed:
		s.granted.store++
	}
}

func (s *sharing) judge() {
	type count struct{ granted, refused, draining, withRoom int }
	counts := map[string]*count{}
	instants := map[bool][]int64{}
	var lastLocal time.Time
	for _, a := range s.answers {
		if a.local() {
			lastLocal = a.came
		}
		name := "Redis: " + a.team
		if a.local() {
			name = "local: " + a.team
		}
		c := counts[name]
		if c == nil {
			c = new(count)
			counts[name] = c
		}
		switch {
		case a.Allowed:
			c.granted++
			instants[a.local()] = append(instants[a.local()], a.at())
		case !a.local() && a.came.Sub(lastLocal) < drains:
			c.draining++
		case !a.hadRoom():
			c.refused++
		default:
			c.withRoom++
			s.t.Errorf("%s was refused although its own limit had room: %+v", name, a)
		}
	}
	for name, c := range counts {
		s.t.Logf("%s: %+v", name, *c)
	}
	for _, team := range []string{"web", "ads"} {
		for _, by := range []string{"Redis: ", "local: "} {
			if c := counts[by+team]; c == nil || c.granted == 0 || c.refused > c.granted/10 {
				s.t.Errorf("%s%s keeps to its guarantee: %+v", by, team, c)
			}
		}
	}
	if counts["local: others"] == nil || counts["local: others"].refused == 0 {
		s.t.Error("the others took less than the local shares")
	}
	for local, all := range instants {
		slices.Sort(all)
		first := 0
		for i, at := range all {
			for all[first] <= at-time.Second.Microseconds() {
				first++
			}
			if n := i - first + 1; n > sharedBurst+sharedCount {
				s.t.Fatalf("%d units within a second, want at most %d; of local shares: %v", n, sharedBurst+sharedCount, local)
			}
		}
	}
}
