// SPDX-License-Identifier: Apache-2.0

package hook

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
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/sent"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/registry/distspec"
)

const (
	maxSecret = 4 << 10  // bytes of a file with a URL or a token
	maxPEM    = 1 << 20  // of a file of authorities
	maxHeader = 64 << 10 // of an answer; its body is not read
	maxBody   = maxSize  // of a request
)

// Webhook is a server that receives changes over HTTPS. Its URL and token are read for each run, and are in no error.
type Webhook struct {
	Name string
	// URL or URLFile, a file with the URL as its only line.
	URL, URLFile string
	CheckURL     func(string) error // checks the file's content
	TokenFile    string             // with a bearer token; empty: none
	CA           string             // file of authorities for the server; empty: Roots
	Format       Format
	Events       []string // see Change.Is; none: all
	// Roots returns the system's authorities; nil: Go's default.
	Roots func() *x509.CertPool
	// Proxy as in http.Transport; nil: none.
	Proxy   func(*http.Request) (*url.URL, error)
	Version string // of the product, for the User-Agent
	Timeout time.Duration
	// Pauses are between the attempts of one run; nil: 2 s and 10 s. If all fail, a later run retries.
	Pauses []time.Duration
}

// errRefused is an answer for which another attempt in the same run is useless.
var errRefused = errors.New("refused")

// Send sends a change, in several attempts if the server does not answer or fails. It follows no redirect.
func (h Webhook) Send(ctx context.Context, c Change) error {
	limited, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	at, err := h.url()
	if err != nil {
		return fmt.Errorf("webhook %s: %w", h.Name, err)
	}
	err = h.attempts(limited, at, c)
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil && limited.Err() != nil:
		err = fmt.Errorf("not sent within %s", h.Timeout)
	}
	return fmt.Errorf("webhook %s: %s: %w", h.Name, at.Host, outside.Error(sent.Unsaid(err, partsOf(at)...)))
}

func (h Webhook) attempts(ctx context.Context, at *url.URL, c Change) error {
	body, err := h.Format.body(c)
	if err != nil {
		return err
	}
	pauses := h.Pauses
	if pauses == nil {
		pauses = []time.Duration{2 * time.Second, 10 * time.Second}
	}
	for n := 0; ; n++ {
		if err = h.post(ctx, at, body); err == nil || errors.Is(err, errRefused) || n == len(pauses) {
			return err
		}
		pause := pauses[n]
		if asked, is := errors.AsType[*wasAsked](err); is {
			if pause = max(pause, time.Until(asked.until)); pause > pauses[len(pauses)-1] {
				return err // for a later run
			}
		}
		if wait.For(ctx, pause) != nil {
			return ctx.Err()
		}
	}
}

// post makes one attempt.
func (h Webhook) post(ctx context.Context, at *url.URL, body []byte) error {
	transport, err := h.transport()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "image-update-agent/"+h.Version)
	if h.TokenFile != "" {
		token, err := secret(h.TokenFile)
		if err != nil {
			return fmt.Errorf("%w: tokenFile %s: %w", errRefused, h.TokenFile, err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := transport.RoundTrip(req) // a transport follows no redirect
	if err != nil {
		return sent.Unsaid(err, sent.Secrets(req, h.Proxy)...)
	}
	defer resp.Body.Close()
	return answered(resp)
}

// answered returns the error of an answer; nil for a success.
func answered(resp *http.Response) error {
	code := resp.StatusCode
	if until := distspec.RetryAfter(resp.Header.Get("Retry-After"), time.Now(), maxAsked); code >= 400 && !until.IsZero() {
		return &wasAsked{until, fmt.Errorf("%d %s", code, http.StatusText(code))}
	}
	switch code / 100 {
	case 2:
		return nil
	case 3:
		return fmt.Errorf("%w: %d: redirects are not followed", errRefused, code)
	case 4:
		return fmt.Errorf("%w: %d %s", errRefused, code, http.StatusText(code))
	default:
		return fmt.Errorf("%d %s", code, http.StatusText(code))
	}
}

func (h Webhook) transport() (*http.Transport, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if h.Roots != nil {
		config.RootCAs = h.Roots()
	}
	if h.CA != "" {
		pem, err := nodefile.Read(h.CA, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("%w: ca %s: %w", errRefused, h.CA, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: ca %s: no certificates", errRefused, h.CA)
		}
	}
	return &http.Transport{
		Proxy: h.Proxy, TLSClientConfig: config, DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: maxHeader,
	}, nil
}

// Check returns why the webhook cannot be sent: one of its files is invalid. It sends nothing.
func (h Webhook) Check() error {
	_, err := h.url()
	if err == nil && h.TokenFile != "" {
		if _, err = secret(h.TokenFile); err != nil {
			err = fmt.Errorf("tokenFile %s: %w", h.TokenFile, err)
		}
	}
	if err == nil {
		_, err = h.transport()
	}
	if err != nil {
		return fmt.Errorf("webhook %s: %w", h.Name, err)
	}
	return nil
}

// url returns the target. Its errors do not quote it.
func (h Webhook) url() (*url.URL, error) {
	text := h.URL
	if h.URLFile != "" {
		var err error
		if text, err = secret(h.URLFile); err == nil {
			err = h.CheckURL(text)
		}
		if err != nil {
			return nil, fmt.Errorf("urlFile %s: %w", h.URLFile, err)
		}
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("not a URL")
	}
	return u, nil
}

// minSegment is the length from which a segment of the path may be a secret, and not a version such as v1.
const minSegment = 4

// partsOf returns the parts of the URL after the host, each of which may be secret.
func partsOf(at *url.URL) []string {
	parts := []string{at.RawQuery, at.Fragment}
	for _, path := range []string{at.RequestURI(), at.EscapedPath(), at.Path} {
		if len(path) > 1 {
			parts = append(parts, path)
		}
	}
	for segment := range strings.SplitSeq(at.Path, "/") {
		if len(segment) >= minSegment {
			parts = append(parts, segment)
		}
	}
	for _, values := range at.Query() {
		parts = append(parts, values...)
	}
	return parts
}

// secret returns the only line of a file that only root may read.
func secret(file string) (string, error) {
	text, err := nodefile.ReadSecret(file, maxSecret)
	if err != nil {
		return "", err
	}
	line := strings.TrimSpace(string(text))
	if line == "" || strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return "", errors.New("want one line without spaces")
	}
	return line, nil
}

// Format is the format of a webhook's body.
type Format string

// The formats.
const (
	FormatEvent Format = "event" // the Change
	FormatText  Format = "text"  // {"text": "..."}
)

// body returns the body of a request.
func (f Format) body(c Change) ([]byte, error) {
	var body any = c
	switch f {
	case FormatEvent:
	case FormatText:
		body = map[string]any{"text": c.text()}
	default:
		return nil, fmt.Errorf("%w: format %q", errRefused, string(f))
	}
	data, err := json.Marshal(body)
	if err == nil && len(data) > maxBody {
		err = fmt.Errorf("%w: %d bytes, at most %d", outside.ErrTooLarge, len(data), maxBody)
	}
	return data, err
}

const (
	maxLines = 20  // of a message, after the first
	maxLine  = 300 // bytes
)

// text returns the change for people in a chat: the node and its state, then a line for each image.
func (c Change) text() string {
	first := fmt.Sprintf("%s: %s", c.Node, c.State)
	switch {
	case c.Was != "" && c.Was != c.State:
		first += fmt.Sprintf(" (was %s)", c.Was)
	case c.Reason != "":
		first += ": " + c.Reason
	}
	lines := []string{first}
	for _, kind := range kinds {
		for _, i := range kind.of(c) {
			lines = append(lines, kind.name+": "+i.text())
		}
	}
	if more := len(lines) - 1 - maxLines; more > 0 {
		lines = append(lines[:1+maxLines], fmt.Sprintf("and %d more", more))
	}
	for n, line := range lines {
		lines[n] = plain.Replace(outside.Line(line, maxLine))
	}
	return strings.Join(lines, "\n")
}

func (i Item) text() string {
	parts := []string{i.Image}
	switch {
	case i.From != "" && i.To != "":
		parts = append(parts, i.From, "to", i.To)
	default:
		parts = append(parts, i.From+i.To)
	}
	if i.Change != "" {
		parts = append(parts, "("+i.Change+")")
	}
	if i.Severity != "" {
		parts = append(parts, i.Severity)
	}
	if i.PodManifest != "" {
		parts = append(parts, "in", i.PodManifest)
	}
	text := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
	if i.Reason != "" {
		text += ": " + i.Reason
	}
	return text
}

// plain replaces characters that a chat would read as a link, or as the name of people to notify, by ones that look
// alike.
var plain = strings.NewReplacer("<", "＜", ">", "＞", "&", "＆", "@", "＠", "[", "［", "]", "］", "`", "'")
