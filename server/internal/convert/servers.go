package convert

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// serversText writes what nginx needs to ask Weir.
func serversText(domain string, questions []*question) []byte {
	var b bytes.Buffer
	if len(questions) == 0 {
		return nil
	}
	b.WriteString(preamble)
	for _, q := range questions {
		if len(q.sites) > 0 {
			q.location(&b, domain)
		}
	}
	b.WriteString(withoutWeir)
	for _, status := range statuses(questions) {
		fmt.Fprintf(&b, "location @weir_refused_%s {\n    return %s;\n}\n\n", status, status)
	}
	for _, q := range questions {
		for i := range q.sites {
			q.inPlace(&b, &q.sites[i])
		}
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

const preamble = `# Include this in each server that limits, and in http:
#
#   upstream weir {
#       server 127.0.0.1:8080;
#       keepalive 32;
#   }
#
# Then put the lines at the end of this file in the places of the limit_req that
# they name. An error_page there hides those of the blocks around it.

`

const withoutWeir = `# When Weir is down, too slow or without its store, requests pass.
location @weir_unlimited {
    return 204;
}

`

const once = `    # nginx counts a request once, wherever it redirects it to by itself.
    uninitialized_variable_warn off;
    if ($weir_asked) {
        return 204;
    }
    set $weir_asked 1;
`

// location writes the place where a question is asked.
func (q *question) location(b *bytes.Buffer, domain string) {
	fmt.Fprintf(b, "location = %s {\n    internal;\n", q.path())
	b.WriteString(once)
	if len(q.key.variables) > 0 && !slices.Contains(q.key.variables, "remote_addr") {
		b.WriteString("    # nginx counts no request with an empty key.\n")
		fmt.Fprintf(b, "    set $weir_key \"%s\";\n    if ($weir_key = \"\") {\n        return 204;\n    }\n", q.values())
	}
	query := "domain=" + url.QueryEscape(domain) + "&deny=403&zone=" + url.QueryEscape(q.name)
	for _, v := range q.key.variables {
		query += "&from=" + url.QueryEscape(entryKey(v)) + "=" + header(v)
	}
	fmt.Fprintf(b, "    proxy_pass http://weir/v1/auth?%s;\n", query)
	for _, v := range q.key.variables {
		fmt.Fprintf(b, "    proxy_set_header %s %s;\n", header(v), q.value(v))
	}
	b.WriteString(`    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Content-Length "";
    proxy_pass_request_body off;
    proxy_connect_timeout 1s;
    proxy_send_timeout 1s;
    proxy_read_timeout 1s;
    proxy_intercept_errors on;
    error_page 500 502 503 504 = @weir_unlimited;
}

`)
}

// path is the location of a question.
func (q *question) path() string {
	name := strings.Map(func(r rune) rune {
		if named(r) || r == '+' || r == '-' {
			return r
		}
		return '_'
	}, q.name)
	if name != q.name {
		name += "." + strconv.Itoa(q.number)
	}
	return "/_weir/" + name
}

// header carries a variable to Weir: what a client can choose must not be pasted
// into a query.
func header(variable string) string {
	return "X-Weir-" + strings.ReplaceAll(entryKey(variable), "_", "-")
}

// value is a variable where the question is asked.
func (q *question) value(variable string) string {
	if slices.Contains(q.copied, variable) {
		return "$weir_" + variable
	}
	return "$" + variable
}

func (q *question) values() string {
	all := ""
	for _, v := range q.key.variables {
		all += q.value(v)
	}
	return all
}

// inPlace writes what takes the place of the limits of a site.
func (q *question) inPlace(b *bytes.Buffer, s *site) {
	var at []string
	for _, u := range s.uses {
		at = append(at, u.at.String())
	}
	fmt.Fprintf(b, "# In %s, for the limit_req at %s:\n#\n", comment(s.name), strings.Join(at, ", "))
	for _, v := range q.copied {
		fmt.Fprintf(b, "#   set $weir_%s $%s;\n", v, v)
	}
	fmt.Fprintf(b, "#   auth_request %s;\n", q.path())
	fmt.Fprintf(b, "#   error_page 403 = @weir_refused_%s;\n\n", s.status)
}

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
