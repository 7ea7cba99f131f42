// SPDX-License-Identifier: Apache-2.0

// Package prometheus asks a Prometheus, or a server with its HTTP API, instant queries. It implements fleet.Asker.
//
// An answer is complete or an error: a server that warns, as Thanos does about a store that is away, has not answered.
package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/internal/catalog/fleet"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Limits of an answer.
const (
	maxAnswer = 32 << 20 // bytes; 10,000 failed nodes are 2 MB
	maxToken  = 16 << 10 // bytes
	timeout   = time.Minute
)

// Client asks one server.
type Client struct {
	query     string // URL
	tokenFile string
	agent     string
	http      http.Client
}

// New returns a client for the URL of a server; a user and a password in it are used. tokenFile has a bearer token and
// is read for each request; empty: none.
func New(server, tokenFile, userAgent string) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%s: want a URL as https://prometheus.example.com", outside.Text(server))
	}
	return &Client{u.JoinPath("api/v1/query").String(), tokenFile, userAgent, http.Client{Timeout: timeout}}, nil
}

// answer is the API's JSON.
type answer struct {
	Status   string   `json:"status"`
	Error    string   `json:"error"`
	Warnings []string `json:"warnings"`
	Data     struct {
		ResultType string `json:"resultType"`
		Result     []struct {
			Metric map[string]string  `json:"metric"`
			Value  [2]json.RawMessage `json:"value"`
		} `json:"result"`
	} `json:"data"`
}

// Query evaluates an expression that yields an instant vector, at the server's time.
func (c *Client) Query(ctx context.Context, expr string) ([]fleet.Sample, error) {
	body, code, sent, err := c.post(ctx, url.Values{"query": {expr}})
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", outside.Error(err))
	}
	var got answer
	err = json.Unmarshal(body, &got)
	switch {
	case err == nil && got.Error != "":
		return nil, fmt.Errorf("prometheus: %s", outside.Text(outside.UnsaidText(got.Error, sent...)))
	case code != http.StatusOK:
		return nil, fmt.Errorf("prometheus: status %d", code)
	case err != nil || got.Status != "success" || got.Data.ResultType != "vector":
		return nil, errors.New("prometheus: the answer is not that of its query API")
	case len(got.Warnings) > 0:
		return nil, fmt.Errorf("prometheus: incomplete answer: %s", outside.Text(outside.UnsaidText(got.Warnings[0], sent...)))
	}
	out := make([]fleet.Sample, 0, len(got.Data.Result))
	for _, r := range got.Data.Result {
		var text string
		err := json.Unmarshal(r.Value[1], &text)
		value, notNumber := strconv.ParseFloat(text, 64)
		if err = errors.Join(err, notNumber); err != nil {
			return nil, errors.New("prometheus: a value of the answer is not a number")
		}
		out = append(out, fleet.Sample{Labels: r.Metric, Value: value})
	}
	return out, nil
}

// post sends a query; sent are the secrets that the answer may quote.
func (c *Client) post(ctx context.Context, form url.Values) (body []byte, code int, sent []string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.query, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, 0, nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("User-Agent", c.agent)
	if c.tokenFile != "" {
		token, err := c.token()
		if err != nil {
			return nil, 0, nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	sent = outside.Sent(req, http.ProxyFromEnvironment)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, 0, nil, outside.Unsaid(err, sent...)
	}
	defer resp.Body.Close()
	body, err = outside.ReadAll(resp.Body, maxAnswer)
	return body, resp.StatusCode, sent, err
}

func (c *Client) token() (string, error) {
	f, err := os.Open(c.tokenFile)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := outside.ReadAll(f, maxToken)
	if err != nil {
		return "", fmt.Errorf("%s: %w", c.tokenFile, err)
	}
	return strings.TrimSpace(string(text)), nil
}
