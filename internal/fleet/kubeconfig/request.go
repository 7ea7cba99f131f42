// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/sent"
)

// Question is a request to the API server. Its path begins with a slash; Version is the product's, for the User-Agent.
type Question struct {
	Method, Path, Version string
	Body                  []byte // of JSON; nil: none
	Limit                 int64  // of the answer's body, in bytes
}

// Send sends a request with the token over a transport from Transport, without following redirects. It returns the body
// of a success: a 200, or a 201 to a request with a body. Another answer is a *Refusal.
func (c Config) Send(ctx context.Context, transport http.RoundTripper, q Question) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, q.Method, c.Server+q.Path, bytes.NewReader(q.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "image-update-agent/"+q.Version)
	if q.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := transport.RoundTrip(req) // a transport follows no redirect
	if err != nil {
		return nil, sent.Unsaid(err, c.secrets()...)
	}
	defer resp.Body.Close()
	body, err := outside.ReadAll(resp.Body, q.Limit)
	if err != nil {
		return nil, sent.Unsaid(fmt.Errorf("answer: %w", err), c.secrets()...)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusCreated && q.Body != nil {
		return body, nil
	}
	refusal := &Refusal{Code: resp.StatusCode, Header: resp.Header}
	refusal.Status, refusal.IsStatus = c.readStatus(body)
	return nil, refusal
}

// Get returns the answer to a GET, see Send, at most limit bytes and on a connection of its own.
func (c Config) Get(ctx context.Context, path, version string, limit int64) ([]byte, error) {
	transport := c.Transport()
	transport.DisableKeepAlives = true
	if c.Dial != nil {
		transport.DialContext = func(_ context.Context, network, address string) (net.Conn, error) {
			return c.Dial(ctx, network, address) // the request's context would not end with the call
		}
	}
	return c.Send(ctx, transport, Question{Method: http.MethodGet, Path: path, Version: version, Limit: limit})
}

// Refusal is an answer without the object.
type Refusal struct {
	Code     int
	Header   http.Header
	IsStatus bool // an API server wrote the answer
	Status   Status
}

func (r *Refusal) Error() string {
	if !r.IsStatus {
		return fmt.Sprintf("%d: the answer is not from an API server", r.Code)
	}
	return fmt.Sprintf("%d: %s", r.Code, outside.Text(r.Status.Message))
}

// Status is why an API server refused a request (Kubernetes' metav1.Status).
type Status struct {
	Reason  string // such as NotFound
	Message string // for people, as the server wrote it
	About   string // the resource, such as leases; empty: unknown
}

// secrets are what is sent to the server and to the proxy, which may quote it.
func (c Config) secrets() []string {
	secrets := []string{c.Token}
	if c.Proxy != nil {
		secrets = append(secrets, sent.Secrets(&http.Request{URL: c.Proxy}, nil)...)
	}
	return secrets
}

// readStatus reads a Status, without the secrets. It returns false if the answer is not from an API server, as that of
// a proxy.
func (c Config) readStatus(body []byte) (Status, bool) {
	var said struct {
		Kind    string `json:"kind"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
		Details struct {
			Kind string `json:"kind"`
		} `json:"details"`
		Metadata struct{} `json:"metadata"`
	}
	if json.Unmarshal(body, &said) != nil || said.Kind != "Status" {
		return Status{}, false
	}
	unsaid := func(text string) string { return sent.UnsaidText(text, c.secrets()...) }
	return Status{Reason: unsaid(said.Reason), Message: unsaid(said.Message), About: said.Details.Kind}, true
}
