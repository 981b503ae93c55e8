package convert

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// serversText writes the configuration with which nginx asks Weir.
func (f *finder) serversText(domain string, questions []*question) []byte {
	var b bytes.Buffer
	if len(questions) == 0 {
		return nil
	}
	b.WriteString(preamble)
	f.textMaps(&b)
	b.WriteString(preambleEnd)
	b.WriteString(guard)
	for _, q := range questions {
		fmt.Fprintf(&b, "if ($uri = %s) {\n    break;\n}\n", quoted(q.path()))
	}
	b.WriteByte('\n')
	for _, q := range questions {
		f.location(&b, domain, q)
	}
	b.WriteString(verdicts)
	for _, status := range statuses(questions) {
		f.refusals(&b, status)
	}
	for _, q := range questions {
		for i := range q.sites {
			f.inPlace(&b, q, &q.sites[i])
		}
	}
	for i := range f.sites {
		if f.sites[i].release {
			f.inPlace(&b, nil, &f.sites[i])
		}
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

const preamble = `# Include this file in each server that limits, before all other directives of the server.
#
# Put these lines at the end of http:
#
#   upstream weir {
#       server 127.0.0.1:8080;
#       keepalive 32;
#   }
`

const preambleEnd = `#
# Then replace each limit_req by the lines at the end of this file that name it.

`

const guard = `# The rewrite directives of the server must not act on sub-requests.
`

const verdicts = `# Weir refuses with 429. A client can cause 400 and 431 by the bytes that it sends as its
# key, and must not escape its limit so. Requests pass on any other answer, and without one:
# Weir may be down, too slow, without its store, or configured otherwise.
location @weir_refused {
    recursive_error_pages off;
    set $weir_refused 1;
    return 401;
}

location @weir_unlimited {
    return 204;
}

`

// refusals writes the location that answers refused requests with a status.
func (f *finder) refusals(b *bytes.Buffer, status string) {
	fmt.Fprintf(b, "location @weir_refused_%s {\n    recursive_error_pages off;\n", status)
	b.WriteString("    uninitialized_variable_warn off;\n    # This 401 has another reason.\n    if ($weir_refused = \"\") {\n        return 401;\n    }\n")
	if f.addsHeaders {
		b.WriteString("    # It hides the add_header of the server and of http: repeat those here.\n")
	}
	fmt.Fprintf(b, "    add_header Retry-After $weir_retry_after always;\n    return %s;\n}\n\n", status)
}

const once = `    # nginx counts a request once, also after internal redirects.
    uninitialized_variable_warn off;
    if ($weir_asked) {
        return 204;
    }
`

const upstream = `    proxy_set_header Connection "";
    proxy_set_header Content-Length "";
    proxy_pass_request_headers off;
    proxy_pass_request_body off;
    proxy_http_version 1.1;
    proxy_connect_timeout 1s;
    proxy_send_timeout 1s;
    proxy_read_timeout 1s;
    proxy_intercept_errors on;
    error_page 400 429 431 = @weir_refused;
    error_page 401 402 403 404 405 406 408 409 410 411 412 413 414 415 416 417 421 422 500 501 502 503 504 505 = @weir_unlimited;
    # A sub-request inherits the rest from the server and http.
    recursive_error_pages off;
    client_max_body_size 0;
    proxy_method GET;
    proxy_set_body "";
    proxy_cache off;
    proxy_store off;
    proxy_bind off;
    proxy_ignore_client_abort on;
    proxy_next_upstream error timeout;
    proxy_buffer_size 8k;
    proxy_buffers 2 8k;
    proxy_busy_buffers_size 8k;
    proxy_temp_file_write_size 8k;
    proxy_max_temp_file_size 0;
}

`

// location writes the location that asks a question.
func (f *finder) location(b *bytes.Buffer, domain string, q *question) {
	fmt.Fprintf(b, "location = %s {\n    internal;\n", q.path())
	b.WriteString(once)
	query, headers, keys := "domain="+url.QueryEscape(domain), "", ""
	certain := false // one of the rules counts every request
	for i, r := range q.rules {
		key, n := &r.use.zone.key, suffix(i)
		entries := "&zone=" + url.QueryEscape(r.name)
		if entry := key.entry(); entry != "" {
			entries += "&from=" + url.QueryEscape(entry) + "=Weir-Key" + n
			fmt.Fprintf(b, "    set $weir_key%s %s;\n", n, quoted(f.keyText(key)))
			headers += fmt.Sprintf("    proxy_set_header Weir-Key%s $weir_key%[1]s;\n", n)
			keys += "$weir_key" + n
		}
		if len(q.rules) > 1 {
			entries += "&and"
		}
		switch {
		case !key.canBeEmpty():
			certain = true
			query += entries
		case len(q.rules) == 1:
			query += entries
		default:
			fmt.Fprintf(b, "    set $weir_rule%s \"\";\n    if ($weir_key%[1]s != \"\") {\n        set $weir_rule%[1]s \"%[2]s\";\n    }\n", n, entries)
			query += "$weir_rule" + n
		}
	}
	if !certain {
		if keys != "$weir_key" {
			fmt.Fprintf(b, "    set $weir_keys %s;\n", quoted(keys))
			keys = "$weir_keys"
		}
		fmt.Fprintf(b, "    # nginx does not count requests with an empty key.\n    if (%s = \"\") {\n        return 204;\n    }\n", keys)
	}
	b.WriteString("    set $weir_asked 1;\n")
	f.unsent(b, q)
	fmt.Fprintf(b, "    proxy_pass http://weir/v1/auth?%s;\n", query)
	b.WriteString(headers)
	b.WriteString(upstream)
}

// maxKeys is the most bytes of a question's keys: Weir reads 16 KiB of headers.
const maxKeys = 15_000

// unsent writes the lines for keys that no header can carry. They share a budget, so that
// nobody escapes a limit by them.
func (f *finder) unsent(b *bytes.Buffer, q *question) {
	told := false
	for i, r := range q.rules {
		key := &r.use.zone.key
		if !slices.ContainsFunc(key.variables, func(v string) bool { return !slices.Contains(shortNames, v) }) {
			continue
		}
		if !told {
			fmt.Fprintf(b, "    # Keys with control characters, and those above %d bytes, share a budget: no header can carry them.\n", maxKeys/len(q.rules))
			told = true
		}
		fmt.Fprintf(b, "    if ($weir_key%s ~ \"[\\x00-\\x08\\x0a-\\x1f\\x7f]|^[\\s\\S]{%d}\") {\n        set $weir_key%[1]s weir:unsent;\n    }\n", suffix(i), maxKeys/len(q.rules)+1)
	}
}

// shortNames are variables whose values clients cannot make long or unprintable.
var shortNames = []string{
	"remote_addr", "remote_port", "realip_remote_addr", "proxy_protocol_addr", "server_name", "server_addr", "server_port",
	"hostname", "scheme", "https", "connection", "server_protocol", "request_method",
}

// canBeEmpty reports whether a key has no text but variables that can be empty.
func (k *key) canBeEmpty() bool {
	text := replaceVariables(k.text, func(string) string { return "" })
	return strings.Trim(text, "${}") == "" && !slices.Contains(k.variables, "remote_addr")
}

// suffix numbers the variables and headers of a question's rules.
func suffix(i int) string {
	if i == 0 {
		return ""
	}
	return strconv.Itoa(i + 1)
}

// path returns the path of a question's location.
func (q *question) path() string {
	name := strings.Map(func(r rune) rune {
		if named(r) || r == '+' || r == '-' {
			return r
		}
		return '_'
	}, q.name)
	if name != q.name || q.again {
		name += "." + strconv.Itoa(q.number)
	}
	return "/_weir/" + name
}

// keyText returns a zone's key as text that a header can carry: addresses in text form,
// and copies of variables that change in a sub-request.
func (f *finder) keyText(k *key) string {
	return replaceVariables(k.text, func(name string) string {
		if !f.isSteady(name) {
			return "weir_" + name
		}
		return f.asText(name)
	})
}

// textName names the text form of a variable whose values contain binary addresses.
func textName(name string) string { return "weir_text_" + name }

// textMaps writes copies of the maps whose values contain binary addresses, with text
// addresses in their place.
func (f *finder) textMaps(b *bytes.Buffer) {
	for _, name := range f.binaryNames {
		d := f.binary[name]
		fmt.Fprintf(b, "#\n#   map %s $%s {\n", quoted(d.words[1]), textName(name))
		for _, line := range d.block {
			words := make([]string, len(line.words))
			for i, word := range line.words {
				words[i] = quoted(word)
				if i > 0 {
					words[i] = quoted(replaceVariables(word, f.asText))
				}
			}
			fmt.Fprintf(b, "#       %s;\n", strings.Join(words, " "))
		}
		b.WriteString("#   }\n")
	}
}

// asText returns the variable that has the text form of another one.
func (f *finder) asText(name string) string {
	switch {
	case name == "binary_remote_addr":
		return "remote_addr"
	case f.binary[name] != nil:
		return textName(name)
	}
	return name
}

// quoted writes a word of a configuration, in quotes unless it needs none.
func quoted(word string) string {
	if plainWord(word) {
		return word
	}
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`).Replace(word)
	return `"` + escaped + `"`
}

func plainWord(word string) bool {
	return word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !named(r) && !strings.ContainsRune("$.-_:/*~^=", r)
	})
}

// inPlace writes the lines that replace the limits of a site. They stand at the end of its
// block, behind its rewrite directives.
func (f *finder) inPlace(b *bytes.Buffer, q *question, s *site) {
	var at []string
	for _, u := range s.uses {
		at = append(at, u.at.String())
	}
	fmt.Fprintf(b, "# At the end of %s (%s), for the limit_req at %s", comment(s.name), comment(s.at.String()), comment(strings.Join(at, ", ")))
	if s.off != nil {
		fmt.Fprintf(b, " and in place of the auth_request off at %s", comment(s.off.at.String()))
	}
	b.WriteString(":\n#\n")
	if q == nil {
		if s.asks == nil {
			b.WriteString("#   auth_request off;\n")
		}
		for _, u := range s.uses {
			fmt.Fprintf(b, "#   %s;\n", writeWords(u.from.words))
		}
		b.WriteByte('\n')
		return
	}
	for _, v := range f.copied(q) {
		fmt.Fprintf(b, "#   set $weir_%s $%s;\n", v, f.asText(v))
	}
	fmt.Fprintf(b, "#   auth_request %s;\n#   auth_request_set $weir_retry_after $upstream_http_retry_after;\n#   %s\n", q.path(), s.refusalPage())
	if !s.ownPages && len(s.pages) > 0 {
		b.WriteString("#   # Those of the blocks around it, which an error_page here hides:\n")
		for _, page := range s.pages {
			fmt.Fprintf(b, "#   %s;\n", writeWords(page.words))
		}
	}
	b.WriteByte('\n')
}

// refusalPage returns the error_page that answers a refusal, as the site's own for the
// status of its limits does.
func (s *site) refusalPage() string {
	pages := s.pagesOf(s.status)
	if len(pages) == 0 {
		return "error_page " + refusedStatus + " = @weir_refused_" + s.status + ";"
	}
	words := pages[0].words
	codes, target, response := words[1:len(words)-1], words[len(words)-1], "="+s.status
	if last := codes[len(codes)-1]; strings.HasPrefix(last, "=") {
		response = last
	} else if strings.Contains(target, "://") {
		response = "" // a redirect
	}
	return strings.Join(strings.Fields("error_page "+refusedStatus+" "+response+" "+quoted(target)), " ") + ";"
}

func writeWords(all []string) string {
	written := make([]string, len(all))
	for i, word := range all {
		written[i] = quoted(word)
	}
	return strings.Join(written, " ")
}

// statuses returns the statuses of the sites' refusals, sorted.
func statuses(questions []*question) []string {
	var all []string
	for _, q := range questions {
		for _, s := range q.sites {
			if !slices.Contains(all, s.status) {
				all = append(all, s.status)
			}
		}
	}
	slices.Sort(all)
	return all
}
