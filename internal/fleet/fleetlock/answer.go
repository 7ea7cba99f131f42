// SPDX-License-Identifier: Apache-2.0

package fleetlock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

var (
	errPage     = errors.New("answers with a web page: not a lock server")
	errRedirect = errors.New("redirects, which the agent does not follow")
	errMissing  = errors.New("names the holders of the lock, and this node is not among them")
)

// strangeError is a 200 with a body that no known lock server sends.
type strangeError struct{ said string }

func (e strangeError) Error() string {
	return fmt.Sprintf("answers %q, which a lock server does not", e.said)
}

// message is the JSON of an answer. The protocol has kind and value, in errors; holders and slots are optional
// extensions.
type message struct {
	Kind    string             `json:"kind"`
	Value   string             `json:"value"`
	Holders []fleet.LockHolder `json:"holders"`
	Slots   int                `json:"slots"`
}

// The bodies that lock servers send with a 200 to Lock and to Unlock: airlock none, poseidon's fleetlock a sentence,
// those of heathcliff26 and strand a kind.
var (
	locked   = lazyregexp.New(`^(?:obtained reboot lease|` + retained + `)$`)
	unlocked = lazyregexp.New(`^(?:steady-state confirmed|reboot lease already unlocked|` +
		`unlocked reboot lease for \S*)$`)
	lockedKinds   = []string{"", "ok", "success", "lock_acquired"}
	unlockedKinds = []string{"", "ok", "success", "lock_released"}
)

// retained is the answer of poseidon's fleetlock to a node that already holds the lock.
const retained = "retained reboot lease"

// answer reads the answer of the server.
func (c *Client) answer(ctx context.Context, resp *http.Response, lock bool) (fleet.LockAnswer, error) {
	e := &fleet.LockError{Server: c.host, Status: resp.StatusCode}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	body, err := outside.ReadAll(resp.Body, maxBody)
	switch {
	case err != nil:
		e.Err = outside.Error(fmt.Errorf("answer: %w", c.plain(ctx, err)))
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		e.Err = errRedirect
	case isPage(media, body):
		e.Err = errPage
	}
	if e.Err != nil {
		return fleet.LockAnswer{}, e
	}
	said, isJSON := parse(body)
	e.Answer = fleet.LockAnswer{Holders: said.Holders, Slots: said.Slots}
	if resp.StatusCode == http.StatusOK {
		if e.Err = c.accept(said, isJSON, body, lock); e.Err != nil {
			return e.Answer, e
		}
		e.Answer.Retained = !isJSON && said.Value == retained
		return e.Answer, nil
	}
	e.Kind, e.Value, e.RetryAt = said.Kind, said.Value, c.retryAt(resp.Header)
	if len(e.Answer.Holders) == 0 {
		e.Answer.Holders = holderIn(said)
	}
	if !lock && said.Kind == lockHeld && c.isOthers(e.Answer.Holders) {
		return fleet.LockAnswer{}, nil
	}
	return e.Answer, e
}

// accept rejects a 200 that is not a success. The protocol does not define its body, so the answer of a captive portal,
// a proxy or a server that reports its error in the body looks the same: only bodies of known lock servers are
// accepted.
func (c *Client) accept(said message, isJSON bool, body []byte, lock bool) error {
	words, kinds := unlocked, unlockedKinds
	if lock {
		words, kinds = locked, lockedKinds
	}
	switch {
	case len(bytes.TrimSpace(body)) == 0, !isJSON && words().MatchString(said.Value):
		return nil
	case !isJSON, !slices.Contains(kinds, said.Kind), said.Kind == "" && said.Value != "", !isPlain(body):
		return strangeError{outside.Line(outside.Mask(string(body)), maxSaid)}
	case lock && c.isOthers(said.Holders):
		return errMissing
	default:
		return nil
	}
}

// isOthers reports whether holders are named, and this node is not among them.
func (c *Client) isOthers(holders []fleet.LockHolder) bool {
	return len(holders) > 0 && !slices.ContainsFunc(holders, func(h fleet.LockHolder) bool { return h.ID == c.o.ID })
}

// isPlain reports whether JSON has only known fields, without duplicates.
func isPlain(body []byte) bool {
	strict, keys := json.NewDecoder(bytes.NewReader(body)), json.NewDecoder(bytes.NewReader(body))
	strict.DisallowUnknownFields()
	if strict.Decode(new(message)) != nil {
		return false
	}
	seen := map[string]bool{}
	_, _ = keys.Token() // the brace
	for keys.More() {
		key, err := keys.Token()
		name := strings.ToLower(fmt.Sprint(key))
		if err != nil || seen[name] || keys.Decode(new(json.RawMessage)) != nil {
			return false
		}
		seen[name] = true
	}
	return true
}

// isPage reports whether an answer is for a browser, independent of its content type.
func isPage(media string, body []byte) bool {
	return media == "text/html" || media == "application/xhtml+xml" ||
		strings.HasPrefix(http.DetectContentType(body), "text/html") ||
		strings.HasPrefix(http.DetectContentType(body), "text/xml")
}

// lockHeld is the kind with which poseidon's fleetlock refuses to release a lock that another node holds, so that there
// is nothing to release.
const lockHeld = "lock_held"

// heldBy is how poseidon's fleetlock names the holder.
var heldBy = lazyregexp.New(`\bheld by ([0-9a-f]{32})\b`)

// holderIn returns the holder that a refusal names in words; nil if there is none.
func holderIn(said message) []fleet.LockHolder {
	if m := heldBy().FindStringSubmatch(said.Value); m != nil {
		return []fleet.LockHolder{{ID: m[1]}}
	}
	return nil
}

// parse parses the body if it is a JSON object. Older servers answer with plain text, which becomes the value.
func parse(body []byte) (m message, isJSON bool) {
	isJSON = bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) && json.Unmarshal(body, &m) == nil
	if !isJSON {
		m = message{Value: string(body)}
	}
	m.Kind, m.Value = outside.Line(m.Kind, maxKind), outside.Text(strings.TrimSpace(m.Value))
	m.Holders = m.Holders[:min(len(m.Holders), maxHolders)]
	for n, h := range m.Holders {
		m.Holders[n] = fleet.LockHolder{ID: outside.Line(h.ID, maxID), Since: outside.Time(h.Since)}
	}
	m.Slots = max(m.Slots, 0)
	return m, isJSON
}

// retryAt parses Retry-After; zero if there is none.
func (c *Client) retryAt(h http.Header) time.Time {
	at, latest := transport.RetryAt(h, c.o.Now()), c.o.Now().Add(maxRetry)
	if at.After(latest) {
		return latest
	}
	return at
}
