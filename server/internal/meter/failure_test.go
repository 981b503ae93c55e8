package meter

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	chatPath    = "/v1/chat/completions"
	messagePath = "/v1/messages"
	chatBody    = `{"model":"mock","max_tokens":80,"messages":[{"role":"user","content":"hello"}]}`
)

// streamBody is chatBody as a stream.
const streamBody = `{"model":"mock","max_tokens":80,"stream":true,"messages":[{"role":"user","content":"hello"}]}`

func guessed(body string) int64 { return ceil(int64(len(body)), bytesPerToken) }

// TestSettled wants each case of an answer charged by the one rule: a number that the
// provider reported, or else the larger of the hold and what was seen.
func TestSettled(t *testing.T) {
	t.Parallel()
	const (
		start = `event: message_start` + "\n" + `data: {"type":"message_start","message":{"usage":{"input_tokens":5,"cache_creation_input_tokens":3,"cache_read_input_tokens":7,"output_tokens":2}}}` + "\n\n"
		word  = `data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"aaaa"}}` + "\n\n"
		end   = `data: {"type":"message_delta","usage":{"output_tokens":%d}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n"
		chunk = `data: {"choices":[{"delta":{"content":"aaaaaaaa"}}]}` + "\n\n"
		done  = "data: [DONE]\n\n"
	)
	usage := func(text string) string {
		return `{"choices":[{"message":{"content":"0123456789"}}],"usage":` + text + `}`
	}
	for store, open := range stores(t) {
		for _, c := range []settlement{
			{name: "reported", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}`), in: 9, out: 4},
			{name: "cached is part of the prompt", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":6}}`), in: 3, hit: 6, out: 4},
			{name: "more than the hold", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":900,"completion_tokens":400}`), in: 900, out: 400},
			{name: "absent", path: chatPath, body: chatBody, answer: `{"choices":[]}`, in: guessed(chatBody), out: 80, missing: UsageAbsent},
			{name: "null", path: chatPath, body: chatBody, answer: usage("null"), in: guessed(chatBody), out: 80, missing: UsageAbsent},
			{name: "seen more than the hold", path: chatPath, body: chatBody, answer: `{"choices":[{"message":{"content":"` + strings.Repeat("a", 400) + `"}}]}`, in: guessed(chatBody), out: 100, missing: UsageAbsent},
			{name: "negative", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":-9,"completion_tokens":4}`), in: guessed(chatBody), out: 80, missing: UsageInvalid},
			{name: "not whole", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":9.5,"completion_tokens":4}`), in: guessed(chatBody), out: 80, missing: UsageInvalid},
			{name: "too large", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":1000000001,"completion_tokens":4}`), in: guessed(chatBody), out: 80, missing: UsageInvalid},
			{name: "wrong total", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":9,"completion_tokens":4,"total_tokens":12}`), in: guessed(chatBody), out: 80, missing: UsageInvalid},
			{name: "more cached than prompt", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":10}}`), in: guessed(chatBody), out: 80, missing: UsageInvalid},
			{name: "compressed all the same", path: chatPath, body: chatBody, header: "gzip", answer: "\x1f\x8bnot really", in: guessed(chatBody), out: 80, missing: UsageEncoded},
			{name: "bad request", path: chatPath, body: chatBody, status: 400, answer: `{}`},
			{name: "rate limited", path: chatPath, body: chatBody, status: 429, answer: `{}`},
			{name: "overloaded", path: messagePath, body: chatBody, status: 529, answer: `{}`},
			{name: "failed", path: chatPath, body: chatBody, status: 500, answer: usage(`{"prompt_tokens":9,"completion_tokens":4}`)},
			{name: "redirect", path: chatPath, body: chatBody, status: 307, answer: ``, in: guessed(chatBody), out: 80, missing: UsageAbsent},

			{name: "cut", path: chatPath, body: chatBody, answer: `{"choices":[{"message":{"content":"01234567`, cut: true, in: guessed(chatBody), out: 80, missing: UsageCut},
			{name: "cut after usage", path: chatPath, body: chatBody, answer: `{"usage":{"prompt_tokens":9,"completion_tokens":4},"choices":[`, cut: true, in: 9, out: 4},
			{name: "stream", path: messagePath, body: streamBody, answer: start + word + fmt.Sprintf(end, 30), in: 8, hit: 7, out: 30},
			{name: "stream cut", path: messagePath, body: streamBody, answer: start + word, cut: true, in: 8, hit: 7, out: 80, missing: UsageCut},
			{name: "stream cut after more than the hold", path: messagePath, body: streamBody, answer: start + strings.Repeat(word, 90), cut: true, in: 8, hit: 7, out: 90, missing: UsageCut},
			{name: "stream with an error event", path: messagePath, body: streamBody, answer: start + word + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", in: 8, hit: 7, out: 80, missing: UsageAbsent},
			{name: "stream whose output falls", path: messagePath, body: streamBody, answer: start + fmt.Sprintf(end, 30) + fmt.Sprintf(end, 29), in: guessed(streamBody), out: 80, missing: UsageInvalid},
			{name: "stream below its start", path: messagePath, body: streamBody, answer: start + fmt.Sprintf(end, 1), in: guessed(streamBody), out: 80, missing: UsageInvalid},
			{name: "chunks", path: chatPath, body: streamBody, answer: chunk + `data: {"choices":[],"usage":{"prompt_tokens":6,"completion_tokens":2,"total_tokens":8}}` + "\n\n" + done, in: 6, out: 2},
			{name: "chunks with usage beside the last choice", path: chatPath, body: streamBody, answer: chunk + `data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":6,"completion_tokens":2}}` + "\n\n" + done, in: 6, out: 2},
			{name: "chunks cut after usage in between", path: chatPath, body: streamBody, answer: `data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":6,"completion_tokens":90}}` + "\n\n", cut: true, in: 6, out: 90, missing: UsageCut},
			{name: "chunks without usage", path: chatPath, body: streamBody, answer: chunk + done, in: guessed(streamBody), out: 80, missing: UsageAbsent},
			{name: "chunks with CRLF", path: chatPath, body: streamBody, answer: strings.ReplaceAll(chunk+`data: {"choices":[],"usage":{"prompt_tokens":6,"completion_tokens":2}}`+"\n\n"+done, "\n", "\r\n"), in: 6, out: 2},
			{name: "response that continues one", path: "/v1/responses", body: `{"model":"mock","max_output_tokens":80,"previous_response_id":"r","input":"hi"}`, answer: `{"usage":{"input_tokens":5000,"output_tokens":300,"total_tokens":5300}}`, in: 5000, out: 300},
			{name: "tools of the provider", path: messagePath, body: chatBody, answer: `{"content":[],"usage":{"input_tokens":4000,"output_tokens":90,"server_tool_use":{"web_search_requests":2}}}`, in: 4000, out: 90},
			{name: "response that failed", path: "/v1/responses", body: `{"model":"mock","stream":true,"max_output_tokens":80,"input":"hi"}`, answer: "data: {\"type\":\"response.failed\",\"response\":{\"usage\":null}}\n\n", in: 17, out: 80, missing: UsageAbsent},
		} {
			t.Run(store+" "+c.name, func(t *testing.T) { c.run(t, open) })
		}
	}
}

// A settlement is an answer of the upstream, and what it costs.
type settlement struct {
	name         string
	path, body   string
	status       int
	header       string
	answer       string
	cut          bool // the upstream breaks off
	in, hit, out int64
	missing      string
}

func (c *settlement) run(t *testing.T, open func(*Options)) {
	t.Parallel()
	b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.Contains(c.body, `"stream":true`) {
			w.Header().Set("Content-Type", "text/event-stream")
		} else {
			w.Header().Set("Content-Type", "application/json")
		}
		if c.header != "" {
			w.Header().Set("Content-Encoding", c.header)
		}
		if c.status != 0 {
			w.WriteHeader(c.status)
		}
		_, _ = io.WriteString(w, c.answer)
		if c.cut {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}), open)
	r := b.request(http.MethodPost, c.path, c.body)
	r.Header.Set("Accept-Encoding", "gzip") // or the client inflates by itself
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if (err != nil) != c.cut {
		t.Errorf("the client's body ended with %v", err)
	}
	if want := strings.ReplaceAll(c.answer, `data: {"choices":[],"usage"`, ""); len(want) == len(c.answer) && string(text) != c.answer {
		t.Errorf("the client got %q, want %q", text, c.answer)
	}
	var used map[string]int64
	b.eventually("the settlement", func() bool {
		used = b.used(secretKey, "mock")
		return used["open"] == 0
	})
	got := [4]int64{used["rpm"], used["input"], used["cached"], used["output"]}
	if diff := cmp.Diff([4]int64{1, c.in, c.hit, c.out}, got); diff != "" {
		t.Errorf("requests, input, cached, output (-want +got):\n%s", diff)
	}
	if sum := c.in + c.hit + c.out; used["tokens"] != sum {
		t.Errorf("tokens %d, want %d", used["tokens"], sum)
	}
	want := map[string]int{}
	if c.missing != "" {
		want[c.missing] = 1
	}
	if diff := cmp.Diff(want, b.seen.missing); diff != "" {
		t.Errorf("missing usage (-want +got):\n%s", diff)
	}
	if b.seen.streams != 0 {
		t.Errorf("%d streams are open", b.seen.streams)
	}
}

// eventually waits until something holds.
func (b *bench) eventually(what string, holds func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("%s does not come", what)
		}
	}
}

// TestUnreachable wants a request that found no upstream to cost a request and no more.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for store, open := range stores(t) {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, testRules, http.NotFoundHandler(), open, func(o *Options) { o.Upstream.Host = "127.0.0.1:1" })
			a := b.post(chatPath, chatBody)
			if a.StatusCode != http.StatusBadGateway || errorOf(t, a.text)["code"] != "upstream" || a.Header.Get("Weir-Source") != "weir" {
				t.Errorf("%d %v %s", a.StatusCode, a.Header, a.text)
			}
			b.wantUsed(1, 0, 0)
		})
	}
}

// TestBrokenUpstream wants an answer that breaks before its head to be 502, and to cost the
// hold because a model may have worked unseen. Nothing is sent twice.
func TestBrokenUpstream(t *testing.T) {
	t.Parallel()
	for store, open := range stores(t) {
		for name, said := range map[string]string{"closed": "", "not HTTP": "220 mail.example.com\r\n\r\n", "half a head": "HTTP/1.1 200 OK\r\nContent-"} {
			t.Run(store+" "+name, func(t *testing.T) {
				t.Parallel()
				var calls atomic.Int64
				b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					calls.Add(1)
					_, _ = io.Copy(io.Discard, r.Body)
					conn, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.WriteString(conn, said)
					_ = conn.Close()
				}), open)
				a := b.post(messagePath, chatBody)
				if a.StatusCode != http.StatusBadGateway || errorOf(t, a.text)["type"] != "api_error" || calls.Load() != 1 {
					t.Errorf("%d %s after %d calls", a.StatusCode, a.text, calls.Load())
				}
				b.wantUsed(1, guessed(chatBody), 80)
			})
		}
	}
}

// TestBrokenClient wants a client that leaves while it sends its body to cost nothing, and
// nothing to be forwarded.
func TestBrokenClient(t *testing.T) {
	t.Parallel()
	for store, open := range stores(t) {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, testRules, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("it was forwarded")
			}), open)
			conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(chatBody), chatBody[:20])
			_ = conn.(*net.TCPConn).CloseWrite()
			if answer, err := io.ReadAll(conn); err != nil || strings.Contains(string(answer), "200 OK") {
				t.Errorf("%q, %v", answer, err)
			}
			_ = conn.Close()
			b.wantUsed(0, 0, 0)
		})
	}
}

// TestLate wants a model that may have worked unseen to cost its hold.
func TestLate(t *testing.T) {
	t.Parallel()
	for store, open := range stores(t) {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			left := make(chan struct{})
			b := newBench(t, testRules, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
				close(left)
			}), open, func(o *Options) { o.UpstreamTimeout = 500 * time.Millisecond })
			a := b.post(messagePath, chatBody)
			if a.StatusCode != http.StatusGatewayTimeout || errorOf(t, a.text)["type"] != "api_error" {
				t.Errorf("%d %s", a.StatusCode, a.text)
			}
			<-left
			b.wantUsed(1, guessed(chatBody), 80)
		})
	}
}

// TestClientLeaves wants a client that leaves to pay its hold, before the first byte and in
// a stream, and the upstream to learn of it.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	both := stores(t)
	for _, name := range []string{"memory", "redis", "memory in a stream", "redis in a stream"} {
		store, _, begun := strings.Cut(name, " ")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, left := make(chan struct{}), make(chan struct{})
			b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if begun {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
					_ = http.NewResponseController(w).Flush()
				}
				close(arrived)
				<-r.Context().Done()
				close(left)
			}), both[store])
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				<-arrived
				if !begun {
					leave()
				}
			}()
			answer, err := http.DefaultClient.Do(b.request(http.MethodPost, chatPath, streamBody).WithContext(ctx))
			if begun {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil {
					t.Error(err)
				}
				leave()
				_ = answer.Body.Close()
			}
			<-left
			b.wantUsed(1, guessed(streamBody), 80)
			b.seen.do(func() {
				if b.seen.missing[UsageClientLeft] != 1 {
					t.Errorf("missing %v", b.seen.missing)
				}
			})
		})
	}
}

// TestCut wants a stream that Weir cuts to end with an error event, and to cost its hold.
func TestCut(t *testing.T) {
	t.Parallel()
	ends := map[string]string{chatPath: `data: {"error":{`, messagePath: "event: error\ndata: {\"type\":\"error\"", "/v1/responses": "event: error\ndata: {\"type\":\"error\",\"code\":\"stopping\""}
	for store, open := range stores(t) {
		for path, want := range ends {
			t.Run(store+" "+path, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "data: {}\n\ndata: {\"half\":")
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}), open)
				answer, err := http.DefaultClient.Do(b.request(http.MethodPost, path, streamBody))
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				from := bufio.NewReader(answer.Body)
				if _, err := from.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				b.proxy.Cut()
				text, err := io.ReadAll(from)
				if err != nil || !strings.HasPrefix(string(text), "\n"+want) || !strings.HasSuffix(string(text), "\n\n") {
					t.Errorf("%q, %v", text, err)
				}
				b.wantUsed(1, guessed(streamBody), 80)
			})
		}
	}
}

// TestSlotsAreRenewed wants a stream to keep its slot for longer than its lease.
func TestSlotsAreRenewed(t *testing.T) {
	t.Parallel()
	const rules = "domain: llm\ndescriptors:\n  - key: key\n    rate_limit: {name: open, requests_per_unit: 1, period: 3s, algorithm: concurrency}\n"
	for store, open := range stores(t) {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			end := sync.OnceFunc(func() { close(ended) })
			t.Cleanup(end)
			b := newBench(t, rules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: {}\n\n")
				_ = http.NewResponseController(w).Flush()
				<-ended
			}), open)
			answer, err := http.DefaultClient.Do(b.request(http.MethodPost, chatPath, streamBody))
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			for until := time.Now().Add(4 * time.Second); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
				if b.used(secretKey, "mock")["open"] != 1 {
					t.Fatal("the slot was lost")
				}
			}
			end()
			_, _ = io.Copy(io.Discard, answer.Body)
			if b.used(secretKey, "mock")["open"] != 0 {
				t.Error("the slot was not released")
			}
		})
	}
}
