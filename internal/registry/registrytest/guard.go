// SPDX-License-Identifier: Apache-2.0

package registrytest

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The secrets of the tests. Other credentials for a registry are learned from the network traffic.
const (
	Secret      = "s3cr3t-of-the-test"
	SecretToken = "t0k3n-of-the-test" //nolint:gosec // not a real token
)

// Guard checks a test for leaks: secrets seen in the network traffic must not be in any log line, error or answer. It
// fails the test at its end.
type Guard struct {
	mu      sync.Mutex
	secrets map[string]string // with the place where it was seen
	said    bytes.Buffer
	Log     *slog.Logger // records the log
}

// NewGuard returns a guard whose log also writes to log, unless that is nil.
func NewGuard(t testing.TB, log *slog.Logger) *Guard {
	t.Helper()
	g := &Guard{secrets: map[string]string{}}
	handler := slog.Handler(slog.NewTextHandler(writer(g.Hear), &slog.HandlerOptions{Level: slog.LevelDebug}))
	if log != nil {
		handler = slog.NewMultiHandler(handler, log.Handler())
	}
	g.Log = slog.New(handler)
	g.Learn("test", Secret)
	g.Learn("test", SecretToken)
	g.Learn("test", EncodedAuth("u", Secret))
	t.Cleanup(func() {
		for _, problem := range g.problems() {
			t.Error(problem)
		}
	})
	return g
}

type writer func(text string)

func (w writer) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}

// Hear records a text that a person could read.
func (g *Guard) Hear(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.said.WriteString(text + "\n")
}

// Answered records an answer and its error.
func (g *Guard) Answered(value any, err error) {
	g.Hear(fmt.Sprintf("%+v", value))
	if err != nil {
		g.Hear(fmt.Sprintf("%v\n%q", err, err.Error()))
	}
}

// Learn records a secret and the place where it was seen.
func (g *Guard) Learn(place, text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if strings.Trim(text, "0123456789") != "" { // a port appears where a host poses as a user
		g.secrets[text] = place
	}
}

// problems returns the leaked secrets, in the forms in which they are sent, and those that are too short to search for.
func (g *Guard) problems() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var problems []string
	said := g.said.String()
	for text, place := range g.secrets {
		if len(text) < 8 {
			problems = append(problems, fmt.Sprintf("%s: %q is too short to be looked for", place, text))
			continue
		}
		for _, form := range []string{
			text, url.QueryEscape(text), url.PathEscape(text), base64.StdEncoding.EncodeToString([]byte(text)),
		} {
			if strings.Contains(said, form) {
				problems = append(problems, fmt.Sprintf("%s: %q was said: %s", place, form, said))
				break
			}
		}
	}
	return problems
}

// open are the headers and query parameters that are not secret.
var (
	openHeaders = []string{"Accept", "Accept-Encoding", "Content-Length", "Content-Type", "Range", "User-Agent"}
	openQuery   = []string{"client_id", "last", "n", "ns", "scope", "service"}
)

// LearnQuery learns the secret values of a query, and a password.
func (g *Guard) LearnQuery(place string, u *url.URL) {
	for key, values := range u.Query() {
		for _, value := range values {
			if !slices.Contains(openQuery, key) {
				g.Learn(place+": query "+key, value)
			}
		}
	}
	if password, ok := u.User.Password(); ok {
		g.Learn(place+": user", password)
	}
}

func (g *Guard) learnRequest(req *http.Request) {
	g.LearnQuery("request", req.URL)
	for key, values := range req.Header {
		for _, value := range values {
			switch {
			case key == "Referer":
				if u, err := url.Parse(value); err == nil {
					g.LearnQuery("referer", u)
				}
			case key == "Authorization":
				_, credentials, _ := strings.Cut(value, " ")
				g.Learn(key, credentials)
				if _, password, ok := req.BasicAuth(); ok {
					g.Learn(key, password)
				}
			case !slices.Contains(openHeaders, key):
				g.Learn("header "+key, value)
			}
		}
	}
	if req.GetBody == nil {
		return
	}
	if body, err := req.GetBody(); err == nil {
		data, _ := io.ReadAll(body)
		form, _ := url.ParseQuery(string(data))
		g.Learn("password", form.Get("password"))
		g.Learn("identity token", form.Get("refresh_token"))
	}
}

// Around puts the guard around wrap.
func (g *Guard) Around(wrap func(http.RoundTripper) http.RoundTripper) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		next = wrap(next)
		return RoundTripper(func(req *http.Request) (*http.Response, error) {
			g.learnRequest(req)
			resp, err := next.RoundTrip(req)
			if err == nil {
				_, query, _ := strings.Cut(resp.Header.Get("Location"), "?")
				g.LearnQuery("location", &url.URL{RawQuery: query})
			}
			return resp, err
		})
	}
}

// SecretIn searches the secret in the forms in which it is sent.
func SecretIn(text string) bool {
	return slices.ContainsFunc([]string{Secret, EncodedAuth("u", Secret), SecretToken}, func(form string) bool {
		return strings.Contains(text, form)
	})
}

// RoundTripper is a function as an http.RoundTripper.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
