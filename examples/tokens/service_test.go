package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/memstore"
)

// still is a store whose time stands still, so that nothing drains.
func still() weir.Taker { return memstore.New(memstore.Options{Now: storetest.NewClock().Now}) }

// words is a model that says so many words of 2 tokens each, and fails then if it
// is told to.
func words(n int, failure error) model {
	return func(context.Context, string) iter.Seq2[chunk, error] {
		return func(yield func(chunk, error) bool) {
			for range n {
				if !yield(chunk{"word-4you", 2}, nil) {
					return
				}
			}
			if failure != nil {
				yield(chunk{}, failure)
			}
		}
	}
}

func TestChargesWhatWasUsed(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	// The prompt of each has 2 tokens.
	for name, c := range map[string]struct {
		model     model
		maxTokens int64
		status    int
		said      int
		used      int64
	}{
		"all it may say":    {words(100, nil), 40, http.StatusOK, 20, 42},
		"less":              {words(5, nil), 40, http.StatusOK, 5, 12},
		"nothing":           {words(0, nil), 40, http.StatusOK, 0, 0},
		"fails at once":     {words(0, down), 40, http.StatusBadGateway, 0, 0},
		"fails on the way":  {words(7, down), 40, http.StatusOK, 7, 16},
		"too much at once":  {words(5, nil), 999, http.StatusRequestEntityTooLarge, 0, 0},
		"no sense":          {words(5, nil), 0, http.StatusBadRequest, 0, 0},
		"odd number of two": {words(5, nil), 7, http.StatusOK, 3, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, still(), c.model, limits{perMinute: 1000, perDay: 1000})
			status, body := s.ask(c.maxTokens)
			if said := strings.Count(body, "word-4you "); status != c.status || said != c.said {
				t.Errorf("%d, %d words: %s", status, said, body)
			}
			if left := s.left(); left != 1000-c.used {
				t.Errorf("%d tokens left of 1000, %d were used", left, c.used)
			}
		})
	}
}

// TestBothLimits: the minute is charged what the day is, and either refuses.
func TestBothLimits(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]limits{"minute": {100, 100_000}, "day": {100_000, 100}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, still(), words(30, nil), l)
			if status, body := s.ask(60); status != http.StatusOK {
				t.Fatal(status, body)
			}
			if left := s.left(); left != 38 {
				t.Errorf("%d tokens left of 100, 62 were used", left)
			}
			if status, body := s.ask(90); status != http.StatusTooManyRequests || s.retryAfter == "" {
				t.Errorf("%d, Retry-After %q: %s", status, s.retryAfter, body)
			}
		})
	}
}

// TestClientLeaves: what was produced until then is charged.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	s := serve(t, still(), patient, limits{perMinute: 1000, perDay: 1000})
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	res, err := s.post(ctx, 50)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if word, err := bufio.NewReader(res.Body).ReadString(' '); err != nil || word != "hello " {
		t.Fatalf("%q, %v", word, err)
	}
	leave()
	// Returns once the request has been dealt with.
	s.server.Close()
	if left := s.left(); left != 1000-2-3 {
		t.Errorf("%d tokens left of 1000, 5 were used", left)
	}
}

// patient says one word and then waits for its listener to leave.
func patient(ctx context.Context, _ string) iter.Seq2[chunk, error] {
	return func(yield func(chunk, error) bool) {
		if yield(chunk{"hello", 3}, nil) {
			<-ctx.Done()
			yield(chunk{}, ctx.Err())
		}
	}
}

func TestStoreIsAway(t *testing.T) {
	t.Parallel()
	s := serve(t, away{}, words(5, nil), limits{perMinute: 10, perDay: 10})
	if status, body := s.ask(5); status != http.StatusServiceUnavailable || strings.Contains(body, "word") {
		t.Errorf("%d: %s", status, body)
	}
}

type away struct{}

func (away) Take(_ context.Context, acts []*weir.Act) { acts[0].Err = weir.ErrNotApplied }

func TestStoryHasTokens(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(context.Background())
	n := int64(0)
	for c, err := range writeStory(ctx, "") {
		if err != nil {
			break
		}
		if n += c.tokens; n >= 5 {
			stop()
		}
	}
	stop()
	if n != 5 || tokensOf(story) < 40 {
		t.Errorf("%d tokens until stopped, %d in all", n, tokensOf(story))
	}
}

// client is a tenant of a service.
type client struct {
	t          *testing.T
	service    *service
	server     *httptest.Server
	retryAfter string
}

func serve(t *testing.T, store weir.Taker, m model, l limits) *client {
	t.Helper()
	s, err := newService(store, m, l)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return &client{t: t, service: s, server: server}
}

func (c *client) post(ctx context.Context, maxTokens int64) (*http.Response, error) {
	body := strings.NewReader(fmt.Sprintf(`{"prompt": "say word", "max_tokens": %d}`, maxTokens))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.server.URL+"/answer", body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Tenant", "7")
	return c.server.Client().Do(r)
}

// ask asks for an answer and returns it once it is charged.
func (c *client) ask(maxTokens int64) (status int, body string) {
	c.t.Helper()
	res, err := c.post(context.Background(), maxTokens)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	c.retryAfter = res.Header.Get("Retry-After")
	return res.StatusCode, string(text)
}

// left is how many tokens the tenant has under the limit with the least.
func (c *client) left() int64 {
	c.t.Helper()
	d, err := c.service.limiter.Peek(context.Background(), "7")
	if err != nil {
		c.t.Fatal(err)
	}
	return d.Remaining
}
