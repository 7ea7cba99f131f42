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
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/sent"
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
	c := &Client{o: o, host: u.Host}
	if c.body, err = requestOf(o.ID, o.Group); err != nil {
		return nil, fmt.Errorf("lock server: %w", err)
	}
	if o.Former != "" {
		if c.former, err = requestOf(o.Former, o.Group); err != nil {
			return nil, fmt.Errorf("lock server: %w", err)
		}
	}
	return c, nil
}

// requestOf returns the body of a request.
func requestOf(id, group string) ([]byte, error) {
	var params struct {
		Client struct {
			ID    string `json:"id"`
			Group string `json:"group"`
		} `json:"client_params"`
	}
	params.Client.ID, params.Client.Group = id, group
	return json.Marshal(params)
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
