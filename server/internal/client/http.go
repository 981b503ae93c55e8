package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// HTTP asks for one GET a decision. It is safe for concurrent use.
type HTTP struct {
	client         *http.Client
	prefix, bearer string
}

// DialHTTP returns a client that appends the key, escaped, to the address:
// "http://127.0.0.1:8080/v1/auth?domain=d&user=". It connects to nothing yet, and
// speaks HTTP/1.1, as proxies do, also over TLS.
func DialHTTP(prefix string, o Options) *HTTP {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.MaxConnsPerHost = o.Connections, o.Connections, o.Connections
	transport.TLSClientConfig = o.TLS
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	return &HTTP{client: &http.Client{Transport: transport}, prefix: prefix, bearer: o.bearer()}
}

// Allow takes a status of 2xx for granted and 403 or 429 for refused.
func (h *HTTP) Allow(ctx context.Context, key string) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.prefix+url.QueryEscape(key), nil)
	if err != nil {
		return false, err
	}
	if h.bearer != "" {
		request.Header.Set("Authorization", h.bearer)
	}
	response, err := h.client.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return false, err
	}
	switch {
	case response.StatusCode/100 == 2:
		return true, nil
	case response.StatusCode == http.StatusForbidden, response.StatusCode == http.StatusTooManyRequests:
		return false, nil
	}
	return false, fmt.Errorf("%s answers %s", h.prefix, response.Status)
}

// Close ends the connections that are idle.
func (h *HTTP) Close() error {
	h.client.CloseIdleConnections()
	return nil
}
