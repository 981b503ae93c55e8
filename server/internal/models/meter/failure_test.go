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

// chunksOf are chunks with these deltas.
func chunksOf(deltas ...string) string {
	text := ""
	for _, delta := range deltas {
		text += `data: {"choices":[{"delta":{` + delta + `}}]}` + "\n\n"
	}
	return text
}

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
			{name: "negative", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":-9,"completion_tokens":4}`), in: guessed(chatBody), out: 4, missing: UsageInvalid},
			{name: "not whole", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":9.5,"completion_tokens":4}`), in: guessed(chatBody), out: 4, missing: UsageInvalid},
			{name: "too large", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":1000000001,"completion_tokens":4}`), in: guessed(chatBody), out: 4, missing: UsageInvalid},
			{name: "a total that is too small", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":9,"completion_tokens":4,"total_tokens":12}`), in: 9, out: 4},
			{name: "more cached than prompt", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":10}}`), in: 9, hit: 10, out: 4},
			{name: "output that only the total has", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":30,"completion_tokens":5,"total_tokens":5035}`), in: 30, out: 5005},
			{name: "output that only the total has, beside cached input", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":30,"completion_tokens":5,"total_tokens":5035,"prompt_tokens_details":{"cached_tokens":10}}`), in: 20, hit: 10, out: 5005},
			{name: "a total and no output", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":30,"total_tokens":5035}`), in: 30, out: 5005},
			{name: "a total alone", path: chatPath, body: chatBody, answer: usage(`{"total_tokens":5035}`), in: guessed(chatBody), out: 5035 - guessed(chatBody), missing: UsageAbsent},
			{name: "reasoning beyond the output", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":30,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":5000}}`), in: 30, out: 5000},
			{name: "reasoning beyond the output of a response", path: "/v1/responses", body: `{"model":"mock","input":"hi"}`, answer: usage(`{"input_tokens":30,"output_tokens":5,"output_tokens_details":{"reasoning_tokens":5000}}`), in: 30, out: 5000},
			{name: "details of another type", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":[],"completion_tokens_details":"none"}`), in: 9, out: 4},
			{name: "numbers with a fraction of 0", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":9.0,"completion_tokens":4e0}`), in: 9, out: 4},
			{name: "zeros", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`), in: guessed(chatBody), out: 80, missing: UsageAbsent},
			{name: "no output although some was seen", path: chatPath, body: chatBody, answer: usage(`{"prompt_tokens":9,"completion_tokens":0,"total_tokens":9}`), in: 9, out: 3},
			{name: "sums beyond what can be charged", path: messagePath, body: chatBody, answer: `{"usage":{"input_tokens":1000000000,"cache_creation_input_tokens":1000000000,"output_tokens":4}}`, in: 1000000000, out: 4},
			{name: "calls beside the sum", path: messagePath, body: chatBody, answer: `{"usage":{"input_tokens":9,"output_tokens":4,"iterations":[{"input_tokens":100,"output_tokens":30},{"input_tokens":9,"output_tokens":4}]}}`, in: 109, out: 34},
			{name: "absent without a bound", path: chatPath, body: `{"model":"mock"}`, answer: `{"choices":[]}`, in: 4, out: 100, missing: UsageAbsent},
			{name: "absent with a bound beyond the guess", path: chatPath, body: `{"model":"unpriced","max_tokens":700}`, answer: `{"choices":[]}`, in: 10, out: 700, missing: UsageAbsent},
			{name: "absent with a bound beyond the model's", path: chatPath, body: `{"model":"mock-dear-deep","max_tokens":700}`, answer: `{"choices":[]}`, in: 11, out: 500, missing: UsageAbsent},
			{name: "compressed all the same", path: chatPath, body: chatBody, header: "gzip", answer: "\x1f\x8bnot really", in: guessed(chatBody), out: 80, missing: UsageEncoded},
			{name: "bad request", path: chatPath, body: chatBody, status: 400, answer: `{}`},
			{name: "rate limited", path: chatPath, body: chatBody, status: 429, answer: `{}`},
			{name: "overloaded", path: messagePath, body: chatBody, status: 529, answer: `{}`},
			{name: "failed", path: chatPath, body: chatBody, status: 500, answer: usage(`{"prompt_tokens":9,"completion_tokens":4}`)},
			{name: "redirect", path: chatPath, body: chatBody, status: 307, answer: ``, in: guessed(chatBody), out: 80, missing: UsageAbsent},

			{name: "cut", path: chatPath, body: chatBody, answer: `{"choices":[{"message":{"content":"01234567`, cut: true, in: guessed(chatBody), out: 80, missing: UsageCut},
			{name: "cut after usage", path: chatPath, body: chatBody, answer: `{"usage":{"prompt_tokens":9,"completion_tokens":4},"choices":[`, cut: true, in: 9, out: 4},
			{name: "stream", path: messagePath, body: streamBody, answer: start + word + fmt.Sprintf(end, 30), in: 8, hit: 7, out: 30},
			{name: "stream cut", path: messagePath, body: streamBody, answer: start + word, cut: true, in: 8, hit: 7, out: 2, missing: UsageCut},
			{name: "stream cut after more than the hold", path: messagePath, body: streamBody, answer: start + strings.Repeat(word, 90), cut: true, in: 8, hit: 7, out: 90, missing: UsageCut},
			{name: "stream with an error event", path: messagePath, body: streamBody, answer: start + word + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", in: 8, hit: 7, out: 2, missing: UsageAbsent},
			{name: "stream whose output falls", path: messagePath, body: streamBody, answer: start + fmt.Sprintf(end, 30) + fmt.Sprintf(end, 29), in: 8, hit: 7, out: 30},
			{name: "stream that ends below its start", path: messagePath, body: streamBody, answer: start + fmt.Sprintf(end, 1), in: 8, hit: 7, out: 2},
			{name: "chunks", path: chatPath, body: streamBody, answer: chunk + `data: {"choices":[],"usage":{"prompt_tokens":6,"completion_tokens":2,"total_tokens":8}}` + "\n\n" + done, in: 6, out: 2},
			{name: "chunks with usage beside the last choice", path: chatPath, body: streamBody, answer: chunk + `data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":6,"completion_tokens":2}}` + "\n\n" + done, in: 6, out: 2},
			{name: "chunks cut after usage in between", path: chatPath, body: streamBody, answer: `data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":6,"completion_tokens":90}}` + "\n\n", cut: true, in: 6, out: 90, missing: UsageCut},
			{name: "chunks with zeros after the usage", path: chatPath, body: streamBody, answer: chunk + `data: {"choices":[],"usage":{"prompt_tokens":6,"completion_tokens":2,"total_tokens":8}}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}` + "\n\n" + done, in: 6, out: 2},
			{name: "chunks with the cached input at their end", path: chatPath, body: streamBody, answer: `data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":6}}}` + "\n\n" + done, in: 3, hit: 6, out: 2},
			{name: "chunks of all kinds of output, cut", path: chatPath, body: streamBody, answer: chunksOf(`"content":"aaaa"`, `"refusal":"aaaa"`, `"reasoning":"aaaa"`, `"reasoning_content":"aaaa","reasoning":"aaaa"`, `"function_call":{"arguments":"aaaa"}`, `"tool_calls":[{"function":{"name":"aaaa"}}]`, `"audio":{"transcript":"aaaa","data":"AAAAAAAAAAAAAAAA"}`), cut: true, in: guessed(streamBody), out: 7, missing: UsageCut},
			{name: "chunks cut, of a model that reasons", path: chatPath, body: strings.Replace(streamBody, `"mock"`, `"mock-dear-deep"`, 1), answer: chunk, cut: true, in: guessed(streamBody) + 2, out: 80, missing: UsageCut},
			{name: "chunks that break with an error", path: chatPath, body: streamBody, answer: chunk + `data: {"error":{"message":"no"}}` + "\n\n", in: guessed(streamBody), out: 2, missing: UsageAbsent},
			{name: "chunks that only end", path: chatPath, body: streamBody, answer: chunk, in: guessed(streamBody), out: 80, missing: UsageAbsent},
			{name: "chunks without usage", path: chatPath, body: streamBody, answer: chunk + done, in: guessed(streamBody), out: 80, missing: UsageAbsent},
			{name: "chunks with CRLF", path: chatPath, body: streamBody, answer: strings.ReplaceAll(chunk+`data: {"choices":[],"usage":{"prompt_tokens":6,"completion_tokens":2}}`+"\n\n"+done, "\n", "\r\n"), in: 6, out: 2},
			{name: "response that continues one", path: "/v1/responses", body: `{"model":"mock","max_output_tokens":80,"previous_response_id":"r","input":"hi"}`, answer: `{"usage":{"input_tokens":5000,"output_tokens":300,"total_tokens":5300}}`, in: 5000, out: 300},
			{name: "tools of the provider", path: messagePath, body: chatBody, answer: `{"content":[],"usage":{"input_tokens":4000,"output_tokens":90,"server_tool_use":{"web_search_requests":2}}}`, in: 4000, out: 90},
			{name: "response that failed", path: "/v1/responses", body: `{"model":"mock","stream":true,"max_output_tokens":80,"input":"hi"}`, answer: "data: {\"type\":\"response.failed\",\"response\":{\"usage\":null}}\n\n", in: 17, out: 0, missing: UsageAbsent},
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
	if c.in >= maxTokens {
		used["input"], used["tokens"] = b.seen.sum("input"), b.seen.sum("tokens")
	}
	got := [4]int64{used["rpm"], used["input"], used["cached"], used["output"]}
	if diff := cmp.Diff([4]int64{1, c.in, c.hit, c.out}, got); diff != "" {
		t.Errorf("requests, input, cached, output (-want +got):\n%s", diff)
	}
	if sum := min(maxTokens, c.in+c.hit+c.out); used["tokens"] != sum {
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

// leave asks as a client that leaves before the head of the answer, or after the first event
// of a stream.
func (b *bench) leave(body string, arrived <-chan struct{}, begun bool) {
	b.t.Helper()
	ctx, leave := context.WithCancel(b.t.Context())
	defer leave()
	go func() {
		<-arrived
		if !begun {
			leave()
		}
	}()
	answer, err := http.DefaultClient.Do(b.request(http.MethodPost, chatPath, body).WithContext(ctx))
	if !begun {
		if err == nil {
			b.t.Error("the answer came")
			_ = answer.Body.Close()
		}
		return
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil {
		b.t.Error(err)
	}
	leave()
	_ = answer.Body.Close()
}

const (
	deepBody   = `{"model":"mock-deep","max_tokens":80,"messages":[{"role":"user","content":"hello"}]}`
	deepStream = `{"model":"mock-deep","max_tokens":80,"stream":true,"messages":[{"role":"user","content":"hello"}]}`
)

// TestClientLeaves wants a client that leaves an answer which does not end soon to pay for the
// output that was seen, or for the bound where it may be hidden, and the upstream to learn of it.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	for store, open := range stores(t) {
		for _, c := range []struct {
			name, body string
			begun      bool
			readOn     time.Duration
			output     int64
		}{
			{"a stream", streamBody, true, 50 * time.Millisecond, 1},
			{"a stream that has not begun", streamBody, false, 50 * time.Millisecond, 0},
			{"a stream of a model that reasons", deepStream, true, 50 * time.Millisecond, 80},
			{"an answer as a whole", chatBody, false, 50 * time.Millisecond, 80},
			{"a stream that is not read on", streamBody, true, 0, 1},
		} {
			t.Run(store+" "+c.name, func(t *testing.T) {
				t.Parallel()
				arrived, left := make(chan struct{}), make(chan struct{})
				b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if c.begun {
						w.Header().Set("Content-Type", "text/event-stream")
						_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
						_ = http.NewResponseController(w).Flush()
					}
					close(arrived)
					<-r.Context().Done()
					close(left)
				}), open, func(o *Options) { o.ReadOn = c.readOn })
				b.leave(c.body, arrived, c.begun)
				<-left
				b.wantUsed(1, guessed(c.body), c.output)
				b.seen.do(func() {
					if b.seen.missing[UsageClientLeft] != 1 {
						t.Errorf("missing %v", b.seen.missing)
					}
				})
			})
		}
	}
}

// TestReadOn wants an answer that ends soon after its client has left to cost what the
// provider reported.
func TestReadOn(t *testing.T) {
	t.Parallel()
	const usage = `"usage":{"prompt_tokens":30,"completion_tokens":5,"total_tokens":5035}`
	for store, open := range stores(t) {
		for name, body := range map[string]string{"a stream": streamBody, "a stream that has not begun": streamBody, "an answer as a whole": chatBody, "of a model that reasons": deepStream} {
			begun := name == "a stream" || body == deepStream
			t.Run(store+" "+name, func(t *testing.T) {
				t.Parallel()
				arrived, noticed := make(chan struct{}), make(chan struct{})
				b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if body != chatBody {
						w.Header().Set("Content-Type", "text/event-stream")
					}
					if begun {
						_, _ = io.WriteString(w, chunksOf(`"content":"a"`))
						_ = http.NewResponseController(w).Flush()
					}
					close(arrived)
					<-noticed
					if body == chatBody {
						_, _ = io.WriteString(w, "{"+usage+"}")
						return
					}
					_, _ = io.WriteString(w, chunksOf(`"content":"b"`)+`data: {"choices":[],`+usage+"}\n\ndata: [DONE]\n\n")
				}), open, func(o *Options) { o.ReadOn = time.Hour })
				b.leave(body, arrived, begun)
				b.eventually("reading on", func() bool { return b.proxy.readers.Load() == 1 })
				close(noticed)
				b.wantUsed(1, 30, 5005)
				b.eventually("its end", func() bool { return b.proxy.readers.Load() == 0 })
				b.seen.do(func() {
					if len(b.seen.missing) > 0 || b.seen.streams != 0 {
						t.Errorf("missing %v, %d streams", b.seen.missing, b.seen.streams)
					}
				})
			})
		}
	}
}

// TestReadOnIsBounded wants no more than so many answers read on at once, and no more than so
// many bytes of one.
func TestReadOnIsBounded(t *testing.T) {
	t.Parallel()
	for name, readers := range map[string]int64{"bytes": 0, "answers": maxReaders} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, sent := make(chan struct{}), make(chan int, 1)
			b := newBench(t, testRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				event := chunksOf(`"content":"a"`) + ":" + strings.Repeat(" ", 64<<10) + "\n\n"
				_, _ = io.WriteString(w, event)
				_ = http.NewResponseController(w).Flush()
				close(arrived)
				n := 0
				defer func() { sent <- n }()
				if readers > 0 {
					<-r.Context().Done()
				}
				for ; r.Context().Err() == nil && n < 16*maxReadOn; n += len(event) {
					if _, err := io.WriteString(w, event); err != nil {
						return
					}
				}
			}), func(o *Options) { o.ReadOn = time.Hour })
			b.proxy.readers.Store(readers)
			b.leave(streamBody, arrived, true)
			if n := <-sent; n >= 16*maxReadOn {
				t.Errorf("%d bytes were read", n)
			}
			b.eventually("its end", func() bool { return b.proxy.readers.Load() == readers && b.used(secretKey, "mock")["open"] == 0 })
		})
	}
}

// TestCut wants a stream that Weir cuts to end with an error event, and to cost what was seen.
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
				answer, err := http.DefaultClient.Do(b.request(http.MethodPost, path, strings.Replace(streamBody, "max_tokens", endpoints[path].bounds()[0], 1)))
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
				b.wantUsed(1, guessed(strings.Replace(streamBody, "max_tokens", endpoints[path].bounds()[0], 1)), 0)
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
