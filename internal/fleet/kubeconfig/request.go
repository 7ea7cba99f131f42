// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/sent"
)

const maxHeader = 16 << 10 // bytes of an answer's header

// Question is a request to the API server. Its path begins with a slash; Version is the product's, for the User-Agent.
type Question struct {
	Method, Path, Version string
	Body                  []byte // of JSON; nil: none
	Limit                 int64  // of the answer's body, in bytes
}

// Answer is an answer with any code.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// Send sends a request with the token over a transport from Transport, without following redirects.
func (c Config) Send(ctx context.Context, transport http.RoundTripper, q Question) (*Answer, error) {
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
		return nil, c.Unsaid(err)
	}
	defer resp.Body.Close()
	body, err := outside.ReadAll(resp.Body, q.Limit)
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	return &Answer{resp.StatusCode, resp.Header, body}, nil
}

// Get returns the answer to a GET, at most limit bytes, without redirects and on a connection of its own. An answer
// other than 200 is a *Refusal.
func (c Config) Get(ctx context.Context, path, version string, limit int64) ([]byte, error) {
	transport := c.Transport()
	transport.DisableKeepAlives, transport.DisableCompression, transport.MaxResponseHeaderBytes = true, true, maxHeader
	answer, err := c.Send(ctx, transport, Question{Method: http.MethodGet, Path: path, Version: version, Limit: limit})
	if err != nil {
		return nil, err
	}
	if answer.Code == http.StatusOK {
		return answer.Body, nil
	}
	refusal := &Refusal{Code: answer.Code}
	refusal.Status, refusal.IsStatus = c.ReadStatus(answer.Body)
	return nil, refusal
}

// Refusal is an answer without the object.
type Refusal struct {
	Code     int
	IsStatus bool // an API server wrote the answer
	Status   Status
}

func (r *Refusal) Error() string {
	if !r.IsStatus {
		return fmt.Sprintf("%d: the answer is not from an API server", r.Code)
	}
	return fmt.Sprintf("%d: %s", r.Code, outside.Text(r.Status.Message))
}

// ReasonNotFound is the reason of a Status about something that does not exist.
const ReasonNotFound = "NotFound"

// Status is why an API server refused a request (Kubernetes' metav1.Status).
type Status struct {
	Reason  string // such as ReasonNotFound
	Message string // for people, as the server wrote it
	About   string // the resource, such as leases; empty: unknown
}

// Unsaid returns a request's error without the token, which a server or a proxy may quote.
func (c Config) Unsaid(err error) error { return sent.Unsaid(err, c.secrets()...) }

// secrets are what is sent to the server and to the proxy.
func (c Config) secrets() []string {
	secrets := []string{c.Token}
	if c.Proxy != nil {
		secrets = append(secrets, sent.Secrets(&http.Request{URL: c.Proxy}, nil)...)
	}
	return secrets
}

// ReadStatus reads a Status, without the token, which a server may quote. It returns false if the answer is not from an
// API server, as that of a proxy.
func (c Config) ReadStatus(body []byte) (Status, bool) {
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
