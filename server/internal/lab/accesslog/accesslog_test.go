package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

const (
	nginxLine  = `192.0.2.7 - alice [10/Oct/2025:13:55:36 -0700] "GET /a%20b/c?d=e HTTP/1.1" 200 2326 "https://example.org/" "Mozilla/5.0 (X11; \"Linux\")"`
	commonLine = `2001:db8::1 - - [10/Oct/2025:13:55:36 +0000] "POST /login HTTP/2.0" 302 -`
	envoyLine  = `[2025-10-10T13:55:36.250Z] "GET /api/v1?x=1 HTTP/1.1" 200 - 0 154 10 9 "10.0.0.1, 192.0.2.9" "curl/8.5" "cc21d9b0" "api.example.org" "10.2.0.3:8080"`
	newerEnvoy = `[2025-10-10T13:55:36.250Z] "GET /api/v1?x=1 HTTP/1.1" 503 UF via_upstream - "upstream \"reset\"" 0 91 10 - "-" "curl/8.5" "cc21d9b0" "api.example.org" "-"`
	jsonLine   = `{"time":"2025-10-10T13:55:36.5+00:00","remote_addr":"192.0.2.8","request":"GET /j?k=1 HTTP/1.1","status":404,"req":{"id":"x"},"ok":true,"none":null}`
)

func all(t testing.TB, o Options, texts ...string) ([]map[string]string, Stats) {
	t.Helper()
	names := []string{
		"remote_addr", "remote_user", "request_method", "request_uri", "request_path", "status", "body_bytes_sent",
		"http_user_agent", "http_referer", "http_host", "http_x_forwarded_for", "req.id", "ok", "none", "response_flags",
	}
	var paths []string
	for i, text := range texts {
		path := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	log, err := Open(paths, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var found []map[string]string
	for {
		r, err := log.Next()
		if errors.Is(err, io.EOF) {
			return found, log.Stats()
		}
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]string{"at": time.UnixMicro(r.Micros).UTC().Format(time.RFC3339Nano)}
		for _, name := range names {
			if value, ok := r.Get(name); ok {
				fields[name] = value
			}
		}
		found = append(found, fields)
	}
}

// TestFormats: each format is found out, and its fields have their names.
func TestFormats(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		nginxLine: {
			"at": "2025-10-10T20:55:36Z", "remote_addr": "192.0.2.7", "remote_user": "alice", "request_method": "GET",
			"request_uri": "/a%20b/c?d=e", "request_path": "/a%20b/c", "status": "200", "body_bytes_sent": "2326",
			"http_referer": "https://example.org/", "http_user_agent": `Mozilla/5.0 (X11; "Linux")`,
		},
		nginxLine + ` "198.51.100.4"`: {"http_x_forwarded_for": "198.51.100.4"},
		commonLine:                    {"at": "2025-10-10T13:55:36Z", "remote_addr": "2001:db8::1", "request_path": "/login", "status": "302"},
		envoyLine: {
			"at": "2025-10-10T13:55:36.25Z", "remote_addr": "192.0.2.9", "request_path": "/api/v1", "status": "200",
			"body_bytes_sent": "154", "http_host": "api.example.org", "http_user_agent": "curl/8.5",
		},
		newerEnvoy: {"status": "503", "response_flags": "UF", "body_bytes_sent": "91", "http_host": "api.example.org"},
		jsonLine: {
			"at": "2025-10-10T13:55:36.5Z", "remote_addr": "192.0.2.8", "request_method": "GET", "request_path": "/j",
			"status": "404", "req.id": "x", "ok": "true",
		},
		`{"ts":1760104536123,"path":"/p"}`:                                              {"at": "2025-10-10T13:55:36.123Z", "request_path": "/p"},
		`{"@timestamp":1760104536123456789,"user":"u"}`:                                 {"remote_user": "u"},
		`{"time_local":"10/Oct/2025:13:55:36 +0200","uri":"/q?r"}`:                      {"at": "2025-10-10T11:55:36Z", "request_path": "/q"},
		"192.0.2.7 - - [10/Oct/2025:13:55:36 +0000] \"\\x16\\x03\" 400 150 \"-\" \"-\"": {"status": "400"},
	} {
		found, stats := all(t, Options{}, text)
		if len(found) != 1 || stats.Broken != 0 || stats.Lines != 1 {
			t.Errorf("%s\n%d records, %+v", text, len(found), stats)
			continue
		}
		for name, value := range want {
			if found[0][name] != value {
				t.Errorf("%s\n%s is %q, want %q", text, name, found[0][name], value)
			}
		}
		if value, ok := found[0]["none"]; ok {
			t.Errorf("%s\na field that is null is %q", text, value)
		}
	}
}

// TestBroken: what cannot be read is counted and shown, and the rest is read.
func TestBroken(t *testing.T) {
	t.Parallel()
	good := strings.Repeat(commonLine+"\n", 3)
	text := good + "\n   \nrubbish\n" + strings.Replace(commonLine, "302", "OK", 1) + "\n" +
		strings.Replace(commonLine, "Oct", "Okt", 1) + "\n" + strings.Replace(commonLine, "2025", "2199", 1) + "\n" +
		strings.Repeat("x", maxLine+1) + "\n" + good[:len(good)-1]
	found, stats := all(t, Options{}, text)
	if len(found) != 6 || stats.Broken != 5 || stats.Lines != 11 || len(stats.Samples) != 5 || stats.Bytes != int64(len(text)) {
		t.Fatalf("%d records, %+v", len(found), stats)
	}
	for i, want := range []string{"no time in brackets", "three digits", "is not of the form", "a year ahead", "bytes long"} {
		if s := stats.Samples[i]; !strings.Contains(s.Why, want) || s.Line != int64(6+i) {
			t.Errorf("sample %d: %+v, want %s", i, s, want)
		}
	}
	for text, want := range map[string]string{
		`{"time":"yesterday"}`: "of no known form", `{"time":-1}`: "no number of seconds", `{"x":1}`: "no time in", `{"time":`: "no JSON object",
		`["a"]`: "no known form", `[2025-10-10T13:55:36Z] x`: "no request", `{"time":"1969-01-01T00:00:00Z"}`: "before 1970",
		`[2025-10-10T13:55:36Z] "GET / HTTP/1.1" 200 - 1 2 3 4 "a"`: "no ",
		"rubbish\n" + commonLine + " extra":                         "of no known format",
	} {
		if _, stats := all(t, Options{}, text); stats.Broken != 1 || !strings.Contains(stats.Samples[0].Why, want) {
			t.Errorf("%s: got %+v, want %s", text, stats, want)
		}
	}
}

// TestLeaps: a wrong clock is one broken line, a pause is none, and no line behind them is lost.
func TestLeaps(t *testing.T) {
	t.Parallel()
	at := func(times ...string) string {
		var b strings.Builder
		for i, year := range times {
			fmt.Fprintf(&b, "%s\n", strings.Replace(commonLine, "10/Oct/2025:13:55:36", fmt.Sprintf("10/Oct/%s:13:55:%02d", year, i), 1))
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		log    string
		broken []int64 // the numbers of the lines
		years  string
	}{
		"the first line is of 1970":        {at("1970", "2025", "2025", "2025"), nil, "1970 2025 2025 2025"},
		"the first lines are of 1970":      {at("1970", "1970", "2025", "2025"), nil, "1970 1970 2025 2025"},
		"a pause of years":                 {at("2022", "2022", "2025", "2025"), nil, "2022 2022 2025 2025"},
		"two pauses":                       {at("2019", "2022", "2022", "2025", "2025"), nil, "2019 2022 2022 2025 2025"},
		"a line of the future":             {at("2025", "2199", "2025", "2025"), []int64{2}, "2025 2025 2025"},
		"two, of different times":          {at("2025", "2199", "2150", "2025"), []int64{2, 3}, "2025 2025"},
		"the last line is of the future":   {at("2025", "2025", "2199"), []int64{3}, "2025 2025"},
		"a line of 1970 among others":      {at("2025", "1970", "2025"), nil, "2025 2025 2025"},
		"a leap, rubbish, and its new age": {at("2019", "2025") + "rubbish\n" + at("2025", "2025"), []int64{2, 3}, "2019 2025 2025"},
	} {
		found, stats := all(t, Options{}, c.log)
		var years []string
		for _, r := range found {
			years = append(years, r["at"][:4])
		}
		var broken []int64
		for _, s := range stats.Samples {
			broken = append(broken, s.Line)
		}
		if got := strings.Join(years, " "); got != c.years || !slices.Equal(broken, c.broken) || stats.Lines != int64(len(found)+len(broken)) {
			t.Errorf("%s: %s, broken %v, %+v; want %s, broken %v", name, got, broken, stats, c.years, c.broken)
		}
	}
}

// TestUnreadable: a log that is none is given up.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	log, err := Open([]string{"-"}, strings.NewReader(strings.Repeat("rubbish\n", 2*undetected)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := log.Next(); err == nil || !strings.Contains(err.Error(), "of no known format") {
		t.Errorf("got %v", err)
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "nowhere"), t.TempDir()} {
		if _, err := Open([]string{path}, nil, Options{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if _, err := ParseFormat("xml"); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	cut := zipped(t, strings.Repeat(commonLine+"\n", 1000))
	if log, err = Open([]string{"-"}, bytes.NewReader(cut[:len(cut)-10]), Options{}); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = log.Next()
	}
	if errors.Is(err, io.EOF) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a torn file: %v", err)
	}
}

func zipped(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func at(second int) string {
	return fmt.Sprintf(`192.0.2.7 - - [10/Oct/2025:13:55:%02d +0000] "GET /%d HTTP/1.1" 200 1`+"\n", second, second)
}

// TestOrder: several logs are merged, late lines put in their place, and what is
// later still is counted.
func TestOrder(t *testing.T) {
	t.Parallel()
	text := func(seconds ...int) string {
		var b strings.Builder
		for _, s := range seconds {
			b.WriteString(at(s))
		}
		return b.String()
	}
	for _, test := range []struct {
		reorder time.Duration
		logs    []string
		want    []string
		late    int64
	}{
		{0, []string{text(1, 4, 5), string(zipped(t, text(2, 3, 9)))}, []string{"/1", "/2", "/3", "/4", "/5", "/9"}, 0},
		{0, []string{text(1, 4, 2, 5)}, []string{"/1", "/4", "/2", "/5"}, 1},
		{2 * time.Second, []string{text(1, 4, 2, 5)}, []string{"/1", "/2", "/4", "/5"}, 0},
		{2 * time.Second, []string{text(1, 9, 2, 7, 20)}, []string{"/1", "/2", "/7", "/9", "/20"}, 0},
		{2 * time.Second, []string{text(1, 10, 20, 3, 30)}, []string{"/1", "/10", "/3", "/20", "/30"}, 1},
		{time.Second, []string{text(5, 5, 5)}, []string{"/5", "/5", "/5"}, 0},
	} {
		found, stats := all(t, Options{Reorder: test.reorder}, test.logs...)
		var got []string
		last := ""
		for _, r := range found {
			got = append(got, r["request_path"])
			if r["at"] < last {
				t.Errorf("%v: the time goes back", test)
			}
			last = r["at"]
		}
		if !slices.Equal(got, test.want) || stats.Late != test.late {
			t.Errorf("reorder %v: got %v, %d late; want %v, %d", test.reorder, got, stats.Late, test.want, test.late)
		}
	}
}

// FuzzParse: no line breaks a parser, and what is read is within bounds.
func FuzzParse(f *testing.F) {
	for _, line := range []string{nginxLine, commonLine, envoyLine, newerEnvoy, jsonLine, `{"time":1e300}`, `a - - [`, `[x] "\"`, "\"\"\"", "a,\"b\"\"c\",d"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for format := Auto; format <= Envoy; format++ {
			log, err := Open([]string{"-"}, strings.NewReader(text), Options{Format: format, Reorder: time.Second})
			if err != nil {
				continue
			}
			last := int64(0)
			for n := int64(1); ; n++ {
				r, err := log.Next()
				if err != nil {
					break
				}
				r.Get("request_path")
				if r.Micros < last || r.Micros > 1e17+1 || n > log.Stats().Lines {
					t.Fatalf("%v: %+v after %d", format, r, last)
				}
				last = r.Micros
			}
		}
	})
}

func BenchmarkNext(b *testing.B) {
	for name, line := range map[string]string{"combined": nginxLine, "envoy": envoyLine, "json": jsonLine} {
		b.Run(name, func(b *testing.B) {
			body := line + "\n"
			log, err := Open([]string{"-"}, strings.NewReader(strings.Repeat(body, b.N)), Options{Reorder: DefaultReorder})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			b.ResetTimer()
			for err == nil {
				_, err = log.Next()
			}
			if n := log.Stats().Lines; n < int64(b.N) || !errors.Is(err, io.EOF) {
				b.Fatalf("%d lines of %d: %v", n, b.N, err)
			}
		})
	}
}
