package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// adminTimeout bounds a call of the admin listener.
	adminTimeout = 10 * time.Second
	// maxAnswer is the largest answer that is read.
	maxAnswer = 16 << 20
)

// adminClient calls the admin listener of a server.
type adminClient struct {
	url   string
	token string // a file
	clear bool   // the token may go in plain text
	tls   clientTLS
}

// call returns the body of the answer. Its errors say what to do.
func (c *adminClient) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	base, err := c.base()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("admin is %q: want host:port or a URL", c.url)
	}
	req.Header.Set("Content-Type", "application/json")
	if err := c.authorize(req); err != nil {
		return nil, err
	}
	config, err := c.tls.config("admin ")
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, unreachable(base, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, unreachable(base, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, c.refused(resp, text)
	}
	return text, nil
}

// base is the URL of the listener, without a slash at its end.
func (c *adminClient) base() (string, error) {
	text := c.url
	if strings.Contains(text, "@") {
		// It is not repeated: a password may stand there.
		return "", errors.New("admin is a URL with a user: want host:port or a URL without one, and the token in a file, for --admin-token-file")
	}
	if !strings.Contains(text, "://") {
		scheme := "http://"
		if c.tls.ca != "" || c.tls.cert != "" {
			scheme = "https://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("admin is %q: want host:port or a URL, such as http://127.0.0.1:6070", c.url)
	}
	return strings.TrimRight(text, "/"), nil
}

func (c *adminClient) authorize(req *http.Request) error {
	if c.token == "" {
		return nil
	}
	if !c.clear {
		if err := checkClearText("admin-token-file", req.URL); err != nil {
			return err
		}
	}
	token, err := readToken(c.token)
	if err != nil {
		return fmt.Errorf("admin token file: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// unreachable says that there was no answer.
func unreachable(base string, err error) error {
	var cause *url.Error
	if errors.As(err, &cause) {
		err = cause.Err
	}
	return fmt.Errorf("no server answers at %s: %w; --admin names the admin listener of a server that runs", base, err)
}

// refused says what the server says.
func (c *adminClient) refused(resp *http.Response, text []byte) error {
	var problem struct {
		Title  string `json:"title"`
		Detail string `json:"detail"`
	}
	if json.Unmarshal(text, &problem) != nil || problem.Title == "" {
		return fmt.Errorf("%s answers %s: is it an admin listener?", c.url, resp.Status)
	}
	said := printed(cmp.Or(problem.Detail, problem.Title))
	if resp.StatusCode == http.StatusUnauthorized {
		if c.token == "" {
			return errors.New("the server asks for a token: give it with --admin-token-file")
		}
		return fmt.Errorf("the server does not know the token in %s", c.token)
	}
	return errors.New(said)
}
