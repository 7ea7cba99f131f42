// SPDX-License-Identifier: Apache-2.0

// Package fleetlock is a client of the FleetLock protocol, with which the nodes of a fleet restart one after another:
// https://coreos.github.io/zincati/development/fleetlock/protocol/. It implements fleet.Locker.
//
// A node locks before it stops a pod, and unlocks after the pod's health check. Both are idempotent: the server knows
// the holder by its id. The protocol has no query for the holder; if a server names holders in its answers, in the JSON
// field "holders", they are reported.
//
// # Promises
//
//   - Only a 200 means success, and only with a body that known lock servers send: nothing, the
//     sentences of poseidon's fleetlock, or JSON with holders or a kind of success.
//   - The client follows no redirect. The size and time of answers are limited.
//   - The client sends only the requests of Lock and Unlock, and keeps no connection open between them.
//   - The client reads certificate files for each request.
package fleetlock

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/sent"
	"github.com/kubic-project/image-update-agent/internal/registry/distspec"
)

// Options configure a Client. URL, Group and ID are required.
type Options struct {
	URL   string // of the server, without the protocol's paths
	Group string
	ID    string // see ID and ZincatiID
	// Former is another id of this node, under which it may still hold the lock: Unlock releases that, too. Empty:
	// none.
	Former string
	CA     string // file of certificate authorities for the server; empty: Roots
	// Cert and Key are files of the client's certificate; empty: none.
	Cert, Key string
	// Roots returns the system's authorities; nil: Go's default.
	Roots func() *x509.CertPool
	// Proxy as in http.Transport; nil: none.
	Proxy   func(*http.Request) (*url.URL, error)
	Version string           // of the product, for the User-Agent
	Timeout time.Duration    // of a request; 0: 10 s
	Now     func() time.Time // nil: time.Now
}

// Client locks and unlocks for one node. It is safe for concurrent use.
type Client struct {
	o    Options
	host string
	body []byte
	// former is the body for Former; nil if there is none.
	former []byte
}

// New returns a client. It sends nothing.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("lock server: %q: want a URL", outside.Text(o.URL))
	}
	if o.Timeout == 0 {
		o.Timeout = timeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Client{o: o, host: u.Host, body: requestOf(o.ID, o.Group)}
	if o.Former != "" {
		c.former = requestOf(o.Former, o.Group)
	}
	return c, nil
}

// requestOf returns the body of a request.
func requestOf(id, group string) []byte {
	var params struct {
		Client struct {
			ID    string `json:"id"`
			Group string `json:"group"`
		} `json:"client_params"`
	}
	params.Client.ID, params.Client.Group = id, group
	body, _ := json.Marshal(params) // texts only
	return body
}

// Lock takes the lock for this node, or keeps it (RecursiveLock). After an error the node may hold it: the answer may
// have been lost. Its errors are *fleet.LockError.
func (c *Client) Lock(ctx context.Context) (fleet.LockAnswer, error) {
	return c.post(ctx, preReboot, c.body)
}

// Unlock releases the lock if the node holds it (UnlockIfHeld), also under its former id.
func (c *Client) Unlock(ctx context.Context) error {
	_, err := c.post(ctx, steadyState, c.body)
	if err == nil && c.former != nil {
		_, err = c.post(ctx, steadyState, c.former)
	}
	return err
}

// The paths of the protocol.
const (
	preReboot   = "/v1/pre-reboot"
	steadyState = "/v1/steady-state"
)

func (c *Client) post(ctx context.Context, path string, body []byte) (fleet.LockAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	ctx, maybeSent := sent.Watch(ctx)
	fail := func(err error) (fleet.LockAnswer, error) {
		return fleet.LockAnswer{}, &fleet.LockError{
			Server: c.host, Err: outside.Error(c.plain(ctx, err)), Unsent: !maybeSent(),
		}
	}
	config, err := c.tlsConfig()
	if err != nil {
		return fail(err)
	}
	transport := &http.Transport{
		Proxy: c.o.Proxy, TLSClientConfig: config, DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: maxHeader,
	}
	url := strings.TrimSuffix(c.o.URL, "/") + path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fail(err)
	}
	req.Header.Set("Fleet-Lock-Protocol", "true")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "image-update-agent/"+c.o.Version)
	resp, err := transport.RoundTrip(req) // a transport follows no redirect
	if err != nil {
		return fail(err)
	}
	defer resp.Body.Close()
	return c.answer(ctx, resp, path == preReboot)
}

// plain removes what the caller reports anyway; a timeout is described by its length.
func (c *Client) plain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", c.o.Timeout)
	}
	return err
}

// tlsConfig reads the files for each request: certificates are renewed while the daemon runs.
func (c *Client) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.o.Roots != nil {
		config.RootCAs = c.o.Roots()
	}
	if c.o.CA != "" {
		pem, err := nodefile.Read(c.o.CA, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("ca %s: %w", c.o.CA, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca %s: no certificates", c.o.CA)
		}
	}
	if c.o.Cert == "" {
		return config, nil
	}
	cert, err := nodefile.Read(c.o.Cert, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("cert %s: %w", c.o.Cert, err)
	}
	key, err := nodefile.Read(c.o.Key, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", c.o.Key, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("cert %s, key %s: %w", c.o.Cert, c.o.Key, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

var (
	errPage     = errors.New("answers with a web page: not a lock server")
	errRedirect = errors.New("redirects, which the agent does not follow")
	errMissing  = errors.New("names the holders of the lock, and this node is not among them")
)

// strangeError is a 200 with a body that no known lock server sends.
type strangeError struct{ said string }

func (e strangeError) Error() string {
	return fmt.Sprintf("answers %q, which is no answer of a lock server", e.said)
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
	e.Kind, e.Value = said.Kind, said.Value
	e.RetryAt = distspec.RetryAfter(resp.Header.Get("Retry-After"), c.o.Now(), maxRetry)
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

// application is the application id of this program, see machine-id(5). It never changes: another one would make every
// node another holder.
const application = "1f4b0e0b6a0d4c52a1d3a7f52c9e6b84"

// ID returns the node's id for lock servers: the machine's id for this application, as
//
//	systemd-id128 machine-id --app-specific=1f4b0e0b6a0d4c52a1d3a7f52c9e6b84
//
// prints it (sd_id128_get_machine_app_specific(3)). The machine's own id cannot be computed from it. A machineID that
// is not 32 hexadecimal digits, such as a host's name, is hashed the same way.
func ID(machineID string) string { return appSpecific(machineID, application) }

// zincati is the application id of Zincati: src/identity/mod.rs of github.com/coreos/zincati. Servers that look up the
// node by its id use this one (poseidon's fleetlock).
const zincati = "de35106b6ec24688b63afddaa156679b"

// ZincatiID returns the node's id as Zincati makes it:
//
//	systemd-id128 machine-id --app-specific=de35106b6ec24688b63afddaa156679b
func ZincatiID(machineID string) string { return appSpecific(machineID, zincati) }

func appSpecific(machineID, application string) string {
	machineID = strings.TrimSpace(machineID)
	key, err := hex.DecodeString(machineID)
	if err != nil || len(key) != 16 {
		key = []byte(machineID)
	}
	app, _ := hex.DecodeString(application)
	mac := hmac.New(sha256.New, key)
	mac.Write(app)
	id := mac.Sum(nil)[:16]
	id[6] = id[6]&0x0f | 0x40 // a UUID of version 4
	id[8] = id[8]&0x3f | 0x80
	return hex.EncodeToString(id)
}
