package dashboard_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/app"
)

const token = "correct-horse-battery"

// send makes a call with headers, without cookies and without following redirects, and returns
// the answer, which ends with the test or after the time, if there is one.
func (s *shopServer) send(timeout time.Duration, method, path, body string, header ...string) *http.Response {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.admin+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// call makes a call and returns the answer with its body read.
func (s *shopServer) call(method, path, body string, header ...string) (*http.Response, string) {
	s.Helper()
	resp := s.send(20*time.Second, method, path, body, header...)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp, string(text)
}

const form = "application/x-www-form-urlencoded"

// login returns the cookie of a session.
func (s *shopServer) login(said string, header ...string) (*http.Response, string) {
	s.Helper()
	resp, _ := s.call(http.MethodPost, "/dashboard/login", url.Values{"token": {said}}.Encode(), append([]string{"Content-Type", form}, header...)...)
	cookies := resp.Cookies()
	if len(cookies) == 0 {
		return resp, ""
	}
	c := cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.MaxAge <= 0 {
		s.Errorf("the cookie is %v", c)
	}
	return resp, c.Name + "=" + c.Value
}

// TestDoor: nothing is shown without the token, and a session opens everything, to
// nobody else's pages.
func TestDoor(t *testing.T) {
	t.Parallel()
	s := serve(t, token)
	for _, path := range []string{"/", "/dashboard/rules", "/dashboard/events?span=5m", "/v1/rules", "/metrics", "/debug/pprof/"} {
		resp, body := s.call(http.MethodGet, path, "")
		if resp.StatusCode != http.StatusUnauthorized || strings.Contains(body, "steady") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
		if isForm := strings.Contains(body, `type="password"`); isForm != (path == "/") {
			t.Errorf("%s: asks for the token: %v", path, isForm)
		}
	}
	if resp, cookie := s.login("wrong-horse-battery"); resp.StatusCode != http.StatusUnauthorized || cookie != "" {
		t.Errorf("a wrong token: %d, %q", resp.StatusCode, cookie)
	}
	if resp, cookie := s.login(token, "Origin", "http://elsewhere.example"); resp.StatusCode != http.StatusForbidden || cookie != "" {
		t.Errorf("somebody else's page logs in: %d, %q", resp.StatusCode, cookie)
	}
	resp, cookie := s.login(token)
	if resp.StatusCode != http.StatusSeeOther || cookie == "" {
		t.Fatalf("the token: %d, %q", resp.StatusCode, cookie)
	}
	block := `{"domain":"shop","entries":[{"key":"user","value":"eve"}]}`
	for _, tc := range []struct {
		name   string
		header []string
		want   int
	}{
		{"session", nil, http.StatusOK},
		{"session, another site's page", []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"session, another origin", []string{"Origin", "http://elsewhere.example"}, http.StatusForbidden},
		{"session, a form", []string{"Content-Type", form}, http.StatusUnsupportedMediaType},
		{"session, a name that was made to resolve here", []string{"Cookie", "weir_session=other"}, http.StatusUnauthorized},
	} {
		header := append([]string{"Content-Type", "application/json", "Cookie", cookie}, tc.header...)
		if resp, body := s.call(http.MethodPost, "/v1/key/block", block, header...); resp.StatusCode != tc.want {
			t.Errorf("%s: %d %s", tc.name, resp.StatusCode, body)
		}
	}
	if resp, body := s.call(http.MethodGet, "/", "", "Cookie", cookie); resp.StatusCode != http.StatusOK || !strings.Contains(body, "steady") {
		t.Errorf("the page: %d", resp.StatusCode)
	}
	s.call(http.MethodPost, "/dashboard/logout", "", "Cookie", cookie)
	if resp, _ := s.call(http.MethodGet, "/v1/rules", "", "Cookie", cookie); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("after the logout: %d", resp.StatusCode)
	}
	if resp, _ := s.call(http.MethodGet, "/", "", "Authorization", "Bearer "+token); resp.StatusCode != http.StatusOK {
		t.Errorf("the token in a header: %d", resp.StatusCode)
	}
}

// TestLoginsEndWithTheirToken: once the file has another token, sessions of the one
// before let nobody in.
func TestLoginsEndWithTheirToken(t *testing.T) {
	t.Parallel()
	var file string
	s := serveIn(t, t.TempDir(), token, func(o *app.Options) { file = o.Admin.TokenFile })
	_, cookie := s.login(token)
	if resp, _ := s.call(http.MethodGet, "/v1/rules", "", "Cookie", cookie); resp.StatusCode != http.StatusOK {
		t.Fatalf("with a session: %d", resp.StatusCode)
	}
	if err := os.WriteFile(file, []byte("another-token-of-some-length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	testserver.Eventually(t, "the session ends with its token", func() bool {
		resp, _ := s.call(http.MethodGet, "/v1/rules", "", "Cookie", cookie)
		return resp.StatusCode == http.StatusUnauthorized
	})
}

var links = regexp.MustCompile(`/dashboard/assets/[a-z]+-[0-9a-f]{16}\.[a-z]+`)

// TestFiles: they are kept by browsers for ever, and nothing but them is loaded.
func TestFiles(t *testing.T) {
	t.Parallel()
	s := serve(t, "")
	resp, page := s.call(http.MethodGet, "/", "")
	policy := resp.Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self';") || strings.Contains(policy, "unsafe") || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the page comes with %v", resp.Header)
	}
	found := links.FindAllString(page, -1)
	if len(found) < 8 {
		t.Errorf("the page has the files %q", found)
	}
	for _, path := range found {
		resp, body := s.call(http.MethodGet, path, "")
		if resp.StatusCode != http.StatusOK || !strings.Contains(resp.Header.Get("Cache-Control"), "immutable") || body == "" {
			t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
		}
		if strings.Contains(path, "/uplot-") && !strings.Contains(body, "The MIT License") {
			t.Errorf("%s comes without its licence", path)
		}
	}
	if resp, _ := s.call(http.MethodGet, "/dashboard/assets/page-0000000000000000.js", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a file that is not there: %d", resp.StatusCode)
	}
	if resp, body := s.call(http.MethodGet, "/dashboard/events?span=2y", ""); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "5m, 1h or 6h") {
		t.Errorf("another span: %d %s", resp.StatusCode, body)
	}
}

// watch opens a stream that ends with the test, and returns its status.
func (s *shopServer) watch(header ...string) (int, *bufio.Reader) {
	s.Helper()
	resp := s.send(0, http.MethodGet, "/dashboard/events?span=5m", "", header...)
	return resp.StatusCode, bufio.NewReader(resp.Body)
}

// TestStreamsAreBounded: one more is refused, and there is room again when one ends.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, "")
	open := 0
	for ; open < 40; open++ {
		if status, _ := s.watch(); status != http.StatusOK {
			if status != http.StatusServiceUnavailable {
				t.Errorf("one more is answered %d", status)
			}
			break
		}
	}
	if open != 16 {
		t.Errorf("%d streams, want 16", open)
	}
	// Whoever reads nothing holds up nobody.
	if got := s.count("path", "/login", 2000); got != 5 {
		t.Errorf("%d granted, want 5", got)
	}
}

// TestStreamsEndWithTheirToken: once the file has another token, streams that it opened end.
func TestStreamsEndWithTheirToken(t *testing.T) {
	t.Parallel()
	var file string
	s := serveIn(t, t.TempDir(), token, func(o *app.Options) { file = o.Admin.TokenFile })
	_, cookie := s.login(token)
	streams := map[string]*bufio.Reader{}
	for name, value := range map[string]string{"Authorization": "Bearer " + token, "Cookie": cookie} {
		status, stream := s.watch(name, value)
		if status != http.StatusOK {
			t.Fatalf("%s: %d", name, status)
		}
		streams[name] = stream
	}
	if err := os.WriteFile(file, []byte("another-token-of-some-length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, stream := range streams {
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, stream)
			ended <- err
		}()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Errorf("the stream that was opened with %s outlives the token", name)
		}
	}
}

// TestStreamOutlivesDeadlines: those of calls that are answered at once.
func TestStreamOutlivesDeadlines(t *testing.T) {
	t.Parallel()
	s := serve(t, token)
	_, cookie := s.login(token)
	status, stream := s.watch("Cookie", cookie)
	if status != http.StatusOK {
		t.Fatalf("the stream: %d", status)
	}
	type message struct {
		State  string `json:"state"`
		Limits []struct {
			Rule    string `json:"rule"`
			Granted uint64 `json:"granted"`
		} `json:"limits"`
	}
	s.count("path", "/login", 3)
	deadline := time.Now().Add(7 * time.Second)
	var last message
	for time.Now().Before(deadline) {
		line, err := stream.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ends: %v", err)
		}
		if text, found := strings.CutPrefix(line, "data: "); found {
			if err := json.Unmarshal([]byte(text), &last); err != nil {
				t.Fatal(err)
			}
		}
	}
	if last.State != "healthy" || len(last.Limits) != 4 || last.Limits[2].Rule != "path=/login" || last.Limits[2].Granted != 3 {
		t.Errorf("%+v", last)
	}
	s.call(http.MethodPost, "/dashboard/logout", "", "Cookie", cookie)
	for {
		if _, err := stream.ReadString('\n'); err != nil {
			return // it ended with the session
		}
		if time.Now().After(deadline.Add(10 * time.Second)) {
			t.Fatal("the stream outlives its session")
		}
	}
}
