// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Request returns a request to the API server with the token, and with a body of JSON unless it is nil. path begins
// with a slash; version is the product's, for the User-Agent.
func (c Config) Request(ctx context.Context, method, path, version string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "image-update-agent/"+version)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return req, nil
}

// ReasonNotFound is the reason of a Status about something that does not exist.
const ReasonNotFound = "NotFound"

// Status is why an API server refused a request (Kubernetes' metav1.Status).
type Status struct {
	Reason  string // such as ReasonNotFound
	Message string // for people, as the server wrote it
	About   string // the resource, such as leases; empty: unknown
}

// Unsaid returns an error of a request without the token, which a server or a proxy may quote.
func (c Config) Unsaid(err error) error { return outside.Unsaid(err, c.secrets()...) }

// secrets are what is sent to the server and to the proxy.
func (c Config) secrets() []string {
	secrets := []string{c.Token}
	if c.Proxy != nil {
		secrets = append(secrets, outside.Sent(&http.Request{URL: c.Proxy}, nil)...)
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
	unsaid := func(text string) string { return outside.UnsaidText(text, c.secrets()...) }
	return Status{Reason: unsaid(said.Reason), Message: unsaid(said.Message), About: said.Details.Kind}, true
}
