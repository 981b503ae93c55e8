package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"
)

type (
	// take is the body of POST /v1/take.
	take struct {
		Domain      string       `json:"domain"`
		Descriptors []descriptor `json:"descriptors"`
		Cost        int64        `json:"cost"`
	}
	descriptor struct {
		Entries []entry `json:"entries"`
	}
	entry struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
)

// answer is what these tests want of an answer.
type answer struct {
	Allowed bool  `json:"allowed"`
	Granted int64 `json:"granted"`
	Limits  []struct {
		AtUS int64 `json:"at_us"`
	} `json:"limits"`
}

// of asks for a cost under one key of the domain seeds.
func of(key string, cost int64) take {
	return take{Domain: "seeds", Descriptors: []descriptor{{Entries: []entry{{Key: key, Value: "42"}}}}, Cost: cost}
}

// newClient returns a client whose connections end with the test.
func newClient(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: connections}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// post sends one take. An error means that the answer did not arrive.
func post(ctx context.Context, client *http.Client, url string, body take) (*answer, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/take", bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
		return nil, &unexpected{resp.Status}
	}
	a := new(answer)
	if err := json.NewDecoder(resp.Body).Decode(a); err != nil {
		return nil, err
	}
	if a.Allowed != (resp.StatusCode == http.StatusOK) || len(a.Limits) != 1 {
		return nil, &unexpected{fmt.Sprintf("%s with %+v", resp.Status, *a)}
	}
	return a, nil
}

// unexpected is an answer that arrived and should not be.
type unexpected struct{ what string }

func (u *unexpected) Error() string { return "unexpected answer: " + u.what }
