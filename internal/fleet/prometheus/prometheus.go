// SPDX-License-Identifier: Apache-2.0

// Package prometheus asks a Prometheus, or a server with its HTTP API. It implements census.Asker.
//
// An answer is complete or an error: a server that warns, as Thanos does about a store that is away, or that says
// isPartial, as VictoriaMetrics does, has not answered. A redirect is an error, so that no other server and no plain
// connection gets the token.
//
// Why Prometheus and no server of our own: a server would have to be run, secured and upgraded, Salt's grains have no
// time, and a Kubernetes annotation is a write by each node. The client of client_golang would add 640 kB.
package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/sent"
	"github.com/kubic-project/image-update-agent/internal/catalog/census"
)

// Limits of an answer.
const (
	maxAnswer = 32 << 20 // bytes; 10,000 nodes are 2 MB
	maxToken  = 16 << 10 // bytes
	timeout   = time.Minute
)

// Client asks one server.
type Client struct {
	api       *url.URL
	tokenFile string
	agent     string
	http      http.Client
}

// New returns a client for the URL of a server; a user and a password in it are used. tokenFile has a bearer token and
// is read for each request; empty: none.
func New(server, tokenFile, userAgent string) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%s: want a URL such as https://prometheus.example.com", outside.Text(server))
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{u.JoinPath("api/v1"), tokenFile, userAgent, http.Client{Timeout: timeout, CheckRedirect: stay}}, nil
}

// answer is the API's JSON.
type answer struct {
	Status    string          `json:"status"`
	Error     string          `json:"error"`
	Warnings  []string        `json:"warnings"`
	IsPartial bool            `json:"isPartial"`
	Data      json.RawMessage `json:"data"`
}

// Query evaluates an expression that yields an instant vector, at the server's time.
func (c *Client) Query(ctx context.Context, expr string) ([]census.Sample, error) {
	form := strings.NewReader(url.Values{"query": {expr}}.Encode())
	var data struct {
		ResultType string `json:"resultType"`
		Result     []struct {
			Metric map[string]string  `json:"metric"`
			Value  [2]json.RawMessage `json:"value"`
		} `json:"result"`
	}
	if err := c.ask(ctx, http.MethodPost, c.api.JoinPath("query"), form, &data); err != nil {
		return nil, err
	}
	if data.ResultType != "vector" {
		return nil, errForeign
	}
	out := make([]census.Sample, 0, len(data.Result))
	for _, r := range data.Result {
		var text string
		err := json.Unmarshal(r.Value[1], &text)
		value, notNumber := strconv.ParseFloat(text, 64)
		if err = errors.Join(err, notNumber); err != nil {
			return nil, errors.New("prometheus: a value of the answer is not a number")
		}
		out = append(out, census.Sample{Labels: r.Metric, Value: value})
	}
	return out, nil
}

// Values returns the values of a label, from the server's index. The index has ranges of hours to days, so values of
// series that ended before a time may be among them.
func (c *Client) Values(ctx context.Context, label, selector string, since time.Time) (values []string, err error) {
	u := c.api.JoinPath("label", label, "values")
	u.RawQuery = url.Values{"match[]": {selector}, "start": {strconv.FormatInt(since.Unix(), 10)}}.Encode()
	return values, c.ask(ctx, http.MethodGet, u, nil, &values)
}

var errForeign = errors.New("prometheus: not an answer of its query API")

// ask sends a request, and decodes the data of a complete answer.
func (c *Client) ask(ctx context.Context, method string, u *url.URL, form io.Reader, data any) error {
	got, err := c.send(ctx, method, u, form)
	if err != nil {
		return fmt.Errorf("prometheus: %w", outside.Error(err))
	}
	quote := func(text string) string { return outside.Text(sent.UnsaidText(text, got.secrets...)) }
	var said answer
	err = json.Unmarshal(got.body, &said)
	switch {
	case err == nil && said.Error != "":
		return fmt.Errorf("prometheus: %s", quote(said.Error))
	case got.location != "":
		return fmt.Errorf("prometheus: redirected to %s", quote(got.location))
	case got.status != http.StatusOK:
		return fmt.Errorf("prometheus: status %d", got.status)
	case err != nil || said.Status != "success" || len(said.Data) == 0:
		return errForeign
	case len(said.Warnings) > 0:
		return fmt.Errorf("prometheus: incomplete answer: %s", quote(said.Warnings[0]))
	case said.IsPartial:
		return errors.New("prometheus: incomplete answer")
	}
	if json.Unmarshal(said.Data, data) != nil {
		return errForeign
	}
	return nil
}

// received is what a server answered, and the secrets that it may quote.
type received struct {
	status   int
	location string
	body     []byte
	secrets  []string
}

func (c *Client) send(ctx context.Context, method string, u *url.URL, form io.Reader) (got received, err error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), form)
	if err != nil {
		return received{}, err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("User-Agent", c.agent)
	if c.tokenFile != "" {
		token, err := c.token()
		if err != nil {
			return received{}, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	got.secrets = sent.Secrets(req, http.ProxyFromEnvironment)
	resp, err := c.http.Do(req)
	if err != nil {
		return received{}, sent.Unsaid(err, got.secrets...)
	}
	defer resp.Body.Close()
	got.status, got.location = resp.StatusCode, resp.Header.Get("Location")
	got.body, err = outside.ReadAll(resp.Body, maxAnswer)
	return got, err
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
