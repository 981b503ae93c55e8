// Package accesslog reads the access logs of web servers and proxies: nginx's and
// Apache's common and combined formats, JSON, and Envoy's default format,
// compressed or not. It needs the same memory for a log of any length.
package accesslog

import (
	"slices"
	"strings"
)

// A Record is one request of a log.
type Record struct {
	// Micros is when it was, in µs since 1970.
	Micros int64
	fields []field
}

type field struct{ name, value string }

// Get returns a field by its name in nginx: remote_addr, remote_user,
// request_method, request_uri, request_path (the URI without its query), status,
// body_bytes_sent, http_referer, http_user_agent, http_host and so on. The fields
// of JSON have their own names too; of those, some spellings of others
// than nginx are understood. It reports whether there is one: a field that is
// empty or "-" is not.
func (r *Record) Get(name string) (string, bool) {
	if value, ok := r.get(name); ok {
		return value, true
	}
	if name == "request_path" {
		uri, ok := r.Get("request_uri")
		path, _, _ := strings.Cut(uri, "?")
		return path, ok && path != ""
	}
	for _, alias := range aliases[name] {
		if value, ok := r.get(alias); ok {
			return value, true
		}
	}
	return "", false
}

// clone returns a copy that stays when the record is used again.
func (r *Record) clone() Record { return Record{r.Micros, slices.Clone(r.fields)} }

// names returns the names of the record's fields, in their order.
func (r *Record) names() []string {
	names := make([]string, len(r.fields))
	for i, f := range r.fields {
		names[i] = f.name
	}
	return names
}

// KnownField reports whether logs have a field by that name in some format.
func KnownField(name string) bool {
	return name == "request_path" || name == "server_protocol" || aliases[name] != nil
}

func (r *Record) get(name string) (string, bool) {
	for i := range r.fields {
		if r.fields[i].name == name {
			value := r.fields[i].value
			return value, value != "" && value != "-"
		}
	}
	return "", false
}

func (r *Record) add(name, value string) { r.fields = append(r.fields, field{name, value}) }

// addRequest adds the parts of a request line.
func (r *Record) addRequest(line string) {
	method, rest, found := strings.Cut(line, " ")
	if !found {
		return
	}
	r.add("request_method", method)
	uri, protocol := rest, ""
	if i := strings.LastIndexByte(rest, ' '); i >= 0 {
		uri, protocol = rest[:i], rest[i+1:]
	}
	r.add("request_uri", uri)
	r.add("server_protocol", protocol)
}

// aliases are other names of nginx's fields, in JSON.
var aliases = map[string][]string{
	"remote_addr":          {"client_ip", "clientip", "remote_ip", "client", "ip", "downstream_remote_address_without_port", "ClientHost", "c-ip"},
	"remote_user":          {"user", "username", "auth", "ClientUsername"},
	"request_method":       {"method", "verb", "RequestMethod", "cs-method"},
	"request_uri":          {"uri", "path", "url", "x_envoy_original_path", "RequestPath", "cs-uri-stem"},
	"status":               {"response_code", "status_code", "code", "DownstreamStatus", "sc-status"},
	"body_bytes_sent":      {"bytes_sent", "bytes", "size", "response_size", "DownstreamContentSize", "sc-bytes"},
	"http_user_agent":      {"user_agent", "agent", "ua"},
	"http_referer":         {"referer", "referrer"},
	"http_host":            {"host", "authority", "vhost", "RequestHost"},
	"http_x_forwarded_for": {"x_forwarded_for", "forwarded_for", "xff"},
	"http_x_request_id":    {"request_id", "x_request_id"},
	"server_protocol":      {"protocol", "RequestProtocol"},
}

// timeFields are where JSON may have the time, the likeliest first.
var timeFields = []string{
	"time", "timestamp", "@timestamp", "ts", "time_iso8601", "time_local", "msec", "start_time", "StartUTC", "datetime", "date",
}
