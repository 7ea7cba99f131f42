// SPDX-License-Identifier: Apache-2.0

package fleetlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

var (
	errPage     = errors.New("answers with a web page: not a lock server")
	errRedirect = errors.New("redirects elsewhere, which is not followed")
)

// message is the JSON of an answer. The protocol has kind and value, in errors; holders and slots are more than it asks
// for.
type message struct {
	Kind    string               `json:"kind"`
	Value   string               `json:"value"`
	Holders []release.LockHolder `json:"holders"`
	Slots   int                  `json:"slots"`
}

// answer reads the answer of the server.
func (c *Client) answer(ctx context.Context, resp *http.Response) (release.LockAnswer, error) {
	e := &release.LockError{Server: c.host, Status: resp.StatusCode}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	body, err := outside.ReadAll(resp.Body, maxBody)
	switch {
	case err != nil:
		e.Err = outside.Error(fmt.Errorf("answer: %w", c.plain(ctx, err)))
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		e.Err = errRedirect
	case media == "text/html":
		e.Err = errPage
	}
	if e.Err != nil {
		return release.LockAnswer{}, e
	}
	said := parse(body)
	e.Answer = release.LockAnswer{Holders: said.Holders, Slots: said.Slots}
	if resp.StatusCode == http.StatusOK {
		return e.Answer, nil
	}
	e.Kind, e.Value, e.RetryAt = said.Kind, said.Value, c.retryAt(resp.Header)
	return e.Answer, e
}

// parse reads what the body says, as far as it is JSON. Older servers answer with plain text, which is a value.
func parse(body []byte) message {
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		m = message{Value: string(body)}
	}
	m.Kind, m.Value = outside.Line(m.Kind, maxKind), outside.Text(strings.TrimSpace(m.Value))
	m.Holders = m.Holders[:min(len(m.Holders), maxHolders)]
	for n, h := range m.Holders {
		m.Holders[n] = release.LockHolder{ID: outside.Line(h.ID, maxID), Since: outside.Time(h.Since)}
	}
	m.Slots = max(m.Slots, 0)
	return m
}

// retryAt reads Retry-After; zero: there is none.
func (c *Client) retryAt(h http.Header) time.Time {
	at, latest := transport.RetryAt(h, c.o.Now()), c.o.Now().Add(maxRetry)
	if at.After(latest) {
		return latest
	}
	return at
}
