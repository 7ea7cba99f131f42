// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

const token = "s3cr3tT0k3n9aB8cD7"

// received is a request received by a server.
type received struct {
	method, path string
	header       http.Header
	body         string
}

// hookServer is an HTTPS server that records requests, and then answers.
type hookServer struct {
	*httptest.Server

	mu  sync.Mutex
	got []received
}

func serve(t *testing.T, answer http.HandlerFunc) *hookServer {
	t.Helper()
	s := &hookServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got = append(s.got, received{r.Method, r.URL.Path, r.Header, string(body)})
		s.mu.Unlock()
		answer(w, r)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *hookServer) requests() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

// private writes a file that only its owner may read.
func private(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// authority returns a file with the certificate of the server.
func (s *hookServer) authority(t *testing.T) string {
	t.Helper()
	return private(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
}

// webhook returns a webhook for this server, whose URL is secret.
func (s *hookServer) webhook(t *testing.T) Webhook {
	t.Helper()
	return Webhook{
		Name: "chat", URLFile: private(t, s.URL+"/services/"+token+"\n"), CheckURL: func(string) error { return nil },
		TokenFile: private(t, token+"\n"), CA: s.authority(t), Format: FormatEvent, Timeout: time.Minute, Version: "1",
		Pauses: []time.Duration{0, 0},
	}
}

func accepts(http.ResponseWriter, *http.Request) {}

// velumIsStaged returns a change.
func velumIsStaged() Change {
	c := Announcement{
		SchemaVersion: 1, State: "staged", Images: []Image{{
			Image: velum, Container: "velum", PodManifest: "velum.yaml", Change: "rebuild", Staged: true,
			Running: status.Named{Tag: "1", Digest: "sha256:1"}, Offered: status.Named{Tag: "2", Digest: "sha256:2"},
		}},
	}.since(Announcement{State: "current"})
	c.Node = "node-1"
	return c
}

func TestWebhookGetsTheChange(t *testing.T) {
	t.Parallel()
	s := serve(t, accepts)
	require.NoError(t, s.webhook(t).Send(t.Context(), velumIsStaged()))
	got := s.requests()
	require.Len(t, got, 1)
	assert.Equal(t, []string{http.MethodPost, "/services/" + token}, []string{got[0].method, got[0].path})
	assert.Equal(t, "application/json", got[0].header.Get("Content-Type"))
	assert.Equal(t, "Bearer "+token, got[0].header.Get("Authorization"))
	var c Change
	require.NoError(t, json.Unmarshal([]byte(got[0].body), &c))
	assert.Equal(t, velumIsStaged(), c)
}

// A chat receives a text.
func TestWebhookForChats(t *testing.T) {
	t.Parallel()
	s := serve(t, accepts)
	h := s.webhook(t)
	h.Format = FormatText
	require.NoError(t, h.Send(t.Context(), velumIsStaged()))
	assert.JSONEq(t, `{"text": "node-1: staged (was current)\nstaged: registry.suse.com/caasp/v4/velum 1 to 2 (rebuild) in velum.yaml"}`,
		s.requests()[0].body)
}

// A reason is text from a registry or a container. It must not notify people or create links.
func TestTextOfAChatHasNoMarkup(t *testing.T) {
	t.Parallel()
	c := Change{Node: "n", State: "failed", Failed: []Item{{Image: "a/b", Reason: "<!channel> @all [x](https://evil.example)\x1b[0m\nnode-1: current"}}}
	text := c.text()
	assert.NotContains(t, text, "<")
	assert.NotContains(t, text, "@")
	assert.NotContains(t, text, "[")
	assert.NotContains(t, text, "\x1b")
	assert.Len(t, strings.Split(text, "\n"), 2, "it makes no line of its own")
}

func TestTextOfAChatIsBounded(t *testing.T) {
	t.Parallel()
	c := Change{Node: "n", State: "failed"}
	for range maxImages {
		c.Failed = append(c.Failed, Item{Image: "a/b", Reason: strings.Repeat("x", maxText)})
	}
	lines := strings.Split(c.text(), "\n")
	require.Len(t, lines, 1+maxLines+1)
	assert.Equal(t, "and 236 more", lines[len(lines)-1])
	for _, line := range lines {
		assert.LessOrEqual(t, len(line), maxLine+len("..."))
	}
}

// faults are answers of servers, and their errors. tries is the number of requests in one run.
var faults = map[string]struct {
	answer http.HandlerFunc
	want   string
	tries  int
}{
	"at fault":     {code(500), "500 Internal Server Error", 3},
	"overloaded":   {code(503), "503 Service Unavailable", 3},
	"too often":    {code(429), "refused: 429 Too Many Requests", 1},
	"unknown path": {code(404), "refused: 404 Not Found", 1},
	"no login":     {code(401), "refused: 401 Unauthorized", 1},
	"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://127.0.0.2:1/"+token, http.StatusTemporaryRedirect)
	}, "refused: 307: redirects are not followed", 1},
	"the same place": {func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path, http.StatusPermanentRedirect)
	}, "refused: 308: redirects are not followed", 1},
	"closes": {func(w http.ResponseWriter, _ *http.Request) { hijack(w, "") }, "EOF", 3},
	"no HTTP": {func(w http.ResponseWriter, r *http.Request) {
		hijack(w, r.URL.Path+" "+r.Header.Get("Authorization")+"\r\n\r\n")
	}, "malformed HTTP", 3},
	"huge header": {func(w http.ResponseWriter, _ *http.Request) {
		hijack(w, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 2*maxHeader)+"\r\n\r\n")
	}, "exceeded", 3},
}

func code(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(n)
		_, _ = io.WriteString(w, "unknown path "+r.URL.Path) // as servers do
	}
}

// hijack answers with these bytes and closes the connection.
func hijack(w http.ResponseWriter, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

func TestFaultyServers(t *testing.T) {
	t.Parallel()
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, fault.answer)
			err := s.webhook(t).Send(t.Context(), velumIsStaged())
			require.ErrorContains(t, err, fault.want)
			host := s.Listener.Addr().String()
			assert.True(t, strings.HasPrefix(err.Error(), "webhook chat: "+host+": "), err.Error())
			assert.NotContains(t, err.Error(), token, "path and token are secrets")
			assert.LessOrEqual(t, len(err.Error()), 2000)
			assert.Len(t, s.requests(), fault.tries)
		})
	}
}

// A secret in a URL need not look like one, nor need a token.
func TestATokenThatTheServerEchoesIsInNoError(t *testing.T) {
	t.Parallel()
	for name, echo := range map[string]func(*http.Request) string{
		"in a status line": func(r *http.Request) string {
			return "HTTP/1.1 " + strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		},
		"in a header": func(r *http.Request) string { return "HTTP/1.1 200 OK\r\n" + r.Header.Get("Authorization") },
		"in base64": func(r *http.Request) string {
			return base64.StdEncoding.EncodeToString([]byte(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")))
		},
		"a part of the path": func(r *http.Request) string { return path.Base(r.URL.Path) },
		"of the query":       func(r *http.Request) string { return r.URL.Query().Get("key") },
	} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) { hijack(w, echo(r)+"\r\n\r\n") })
		h := s.webhook(t)
		h.TokenFile = private(t, "correct-horse\n")
		h.URLFile = private(t, s.URL+"/services/battery?key=staple\n")
		err := h.Send(t.Context(), velumIsStaged())
		require.ErrorContains(t, err, "malformed", name)
		require.ErrorContains(t, err, "***", name)
		for _, secret := range []string{"horse", "Y29ycmVjd", "battery", "staple"} {
			assert.NotContains(t, err.Error(), secret, name)
		}
	}
}

// The body of an answer is not read, so neither its size nor its speed matters.
func TestEndlessAnswerIsNotRead(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		for r.Context().Err() == nil { // until the client closes
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
				return
			}
		}
	})
	require.NoError(t, s.webhook(t).Send(t.Context(), velumIsStaged()))
}

func TestHangingServer(t *testing.T) {
	t.Parallel()
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	h := s.webhook(t)
	h.Timeout = time.Second
	require.ErrorContains(t, h.Send(t.Context(), velumIsStaged()), "not sent within 1s")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, h.Send(ctx, velumIsStaged()), context.Canceled)
}

func TestTheWebhooksServerIsVerified(t *testing.T) {
	t.Parallel()
	s := serve(t, accepts)
	h := s.webhook(t)
	h.CA = ""
	require.ErrorContains(t, h.Send(t.Context(), velumIsStaged()), "certificate")
	h.CA = private(t, "no certificate")
	require.ErrorContains(t, h.Send(t.Context(), velumIsStaged()), "no certificates")
	assert.Empty(t, s.requests())
}

func TestBodyIsBounded(t *testing.T) {
	t.Parallel()
	for _, f := range []Format{FormatEvent, FormatText} {
		_, err := f.body(Change{Reason: strings.Repeat("x", maxBody-1000)})
		require.NoError(t, err)
	}
	_, err := FormatEvent.body(Change{Reason: strings.Repeat("x", maxBody)})
	require.ErrorContains(t, err, "too large")
}

func TestAWebhookWantsTLS12(t *testing.T) {
	t.Parallel()
	for version, want := range map[uint16]string{tls.VersionTLS11: "protocol version", tls.VersionTLS12: ""} {
		s := &hookServer{Server: httptest.NewUnstartedServer(http.HandlerFunc(accepts))}
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: version}
		s.StartTLS()
		t.Cleanup(s.Close)
		err := s.webhook(t).Send(t.Context(), velumIsStaged())
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// Secrets are read from root's files that other users cannot read, and no error contains them.
func TestFilesOfAWebhook(t *testing.T) {
	t.Parallel()
	s := serve(t, accepts)
	for name, c := range map[string]struct {
		change func(t *testing.T, h *Webhook)
		want   string
	}{
		"no file":         {func(_ *testing.T, h *Webhook) { h.URLFile += "x" }, "no such file"},
		"others read":     {func(t *testing.T, h *Webhook) { require.NoError(t, os.Chmod(h.URLFile, 0o640)) }, "others may read it"},
		"others write":    {func(t *testing.T, h *Webhook) { require.NoError(t, os.Chmod(h.TokenFile, 0o622)) }, "others may write"},
		"empty":           {func(t *testing.T, h *Webhook) { h.TokenFile = private(t, "\n") }, "want one line"},
		"two lines":       {func(t *testing.T, h *Webhook) { h.TokenFile = private(t, token+"\n"+token) }, "want one line"},
		"too large":       {func(t *testing.T, h *Webhook) { h.TokenFile = private(t, strings.Repeat(token, maxSecret)) }, "too large"},
		"refused address": {func(_ *testing.T, h *Webhook) { h.CheckURL = func(string) error { return os.ErrInvalid } }, "invalid argument"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := s.webhook(t)
			require.NoError(t, h.Check())
			c.change(t, &h)
			for _, err := range []error{h.Check(), h.Send(t.Context(), velumIsStaged())} {
				require.ErrorContains(t, err, c.want)
				assert.NotContains(t, err.Error(), token)
			}
		})
	}
	t.Cleanup(func() { assert.Empty(t, s.requests(), "and nothing is sent") })
}

// A proxy is asked for a tunnel and sees neither path nor token.
func TestWebhookGoesThroughTheProxy(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	asked := make(chan string, 4)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			asked <- line
			_, _ = io.WriteString(conn, "HTTP/1.1 502 Bad Gateway for correct-horse\r\n\r\n")
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = listener.Close(); done.Wait() })
	s := serve(t, accepts)
	h := s.webhook(t)
	h.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: listener.Addr().String(), User: url.UserPassword("user", "correct-horse")})
	err = h.Send(t.Context(), velumIsStaged())
	require.ErrorContains(t, err, "Bad Gateway")
	assert.NotContains(t, err.Error(), "horse")
	assert.Equal(t, "CONNECT "+s.Listener.Addr().String()+" HTTP/1.1\r\n", <-asked)
	assert.Empty(t, s.requests())
}

func TestKindsOfChanges(t *testing.T) {
	t.Parallel()
	c := velumIsStaged()
	for _, wanted := range [][]string{nil, {"staged"}, {"state"}, {"failed", "staged"}} {
		assert.True(t, c.Is(wanted), wanted)
	}
	for _, wanted := range [][]string{{"offered"}, {"applied", "failed"}} {
		assert.False(t, c.Is(wanted), wanted)
	}
	c.Was = c.State
	assert.False(t, c.Is([]string{"state"}))
}
