// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
)

const (
	oldContainerd, newContainerd = "containerd/1.7.24", "containerd/v2.1.9"

	ofVelum  = "/v2/caasp/v4/velum/manifests/"
	nsOfSUSE = "?ns=registry.suse.com"
)

// asked sends a request to a server with a table, and returns the status of the answer, or "hung up".
func asked(t *testing.T, s *Server, request string) (status string, header http.Header) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, request) // before it is accepted: the server does not wait long
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			s.serve(conn, func() {})
			err = conn.Close()
		}
		served <- err
	}()
	_ = conn.(*net.TCPConn).CloseWrite() // the server may have closed the connection
	raw, err := io.ReadAll(conn)
	if !errors.Is(err, syscall.ECONNRESET) { // unread data resets the connection
		require.NoError(t, err)
	}
	require.NoError(t, <-served)
	if len(raw) == 0 {
		return "hung up", nil
	}
	r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), &http.Request{Method: http.MethodHead})
	require.NoError(t, err)
	defer r.Body.Close()
	return r.Status, r.Header
}

func server(t *testing.T, content table.Table) (s *Server, log *bytes.Buffer) {
	t.Helper()
	log = &bytes.Buffer{}
	return NewServer(saved(t, content), t.TempDir(), slog.New(slog.NewTextHandler(log, nil))), log
}

func requestOf(method, target, agent string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n\r\n", method, target, "127.0.0.1:334", agent)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, target string
		want           Result
	}{
		"a tag of the table":           {"HEAD", ofVelum + velum.Tag + nsOfSUSE, Served},
		"a digest of the table":        {"HEAD", ofVelum + velum.Digest + nsOfSUSE, Served},
		"an unknown tag":               {"HEAD", ofVelum + "4.0.0-rev2" + nsOfSUSE, Unknown},
		"an unknown digest":            {"HEAD", ofVelum + "sha256:" + strings.Repeat("2", 64) + nsOfSUSE, Unknown},
		"a digest of another name":     {"HEAD", "/v2/caasp/v4/etcd/manifests/" + velum.Digest + nsOfSUSE, Unknown},
		"another registry":             {"HEAD", ofVelum + velum.Tag + "?ns=docker.io", Unknown},
		"no registry":                  {"HEAD", ofVelum + velum.Tag, Refused},
		"two registries":               {"HEAD", ofVelum + velum.Tag + nsOfSUSE + "&ns=docker.io", Refused},
		"a broken query":               {"HEAD", ofVelum + velum.Tag + nsOfSUSE + "&%zz", Refused},
		"a GET":                        {"GET", ofVelum + velum.Tag + nsOfSUSE, Refused},
		"a POST":                       {"POST", ofVelum + velum.Tag + nsOfSUSE, Refused},
		"a blob":                       {"HEAD", "/v2/caasp/v4/velum/blobs/" + velum.Digest + nsOfSUSE, Refused},
		"the API":                      {"GET", "/v2/", Refused},
		"tags":                         {"GET", "/v2/caasp/v4/velum/tags/list" + nsOfSUSE, Refused},
		"an escape in the name":        {"HEAD", "/v2/caasp%2Fv4/velum/manifests/" + velum.Tag + nsOfSUSE, Refused},
		"a proxy's request":            {"HEAD", "http://registry.suse.com" + ofVelum + velum.Tag + nsOfSUSE, Refused},
		"no path":                      {"OPTIONS", "*", Refused},
		"a path that leads elsewhere":  {"HEAD", "/v2/x/../caasp/v4/velum/manifests/" + velum.Tag + nsOfSUSE, Unknown},
		"something below the manifest": {"HEAD", ofVelum + velum.Tag + "/x" + nsOfSUSE, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, log := server(t, oneTag())
			for agent, refusal := range map[string]string{oldContainerd: "404 Not Found", newContainerd: "hung up", "curl/8": "404 Not Found"} {
				status, header := asked(t, s, requestOf(c.method, c.target, agent))
				if c.want != Served {
					assert.Equal(t, refusal, status, agent)
					continue
				}
				assert.Equal(t, "200 OK", status, agent)
				assert.Equal(t, velum.Digest, header.Get("Docker-Content-Digest"))
				assert.Equal(t, velum.MediaType, header.Get("Content-Type"))
				assert.Equal(t, fmt.Sprint(velum.Size), header.Get("Content-Length"))
			}
			journal, err := os.ReadFile(filepath.Join(s.journalDir, JournalFile))
			require.NoError(t, err)
			assert.Equal(t, 3, strings.Count(string(journal), " "+string(c.want)), "%s", journal)
			assert.Equal(t, c.want == Served, strings.Contains(log.String(), "manifest served from the node"), log)
		})
	}
}

// Without a table the client gets the answer for an unknown tag.
func TestUnusableTableAnswersNothing(t *testing.T) {
	t.Parallel()
	s, log := server(t, oneTag())
	require.NoError(t, os.Truncate(s.table.path, 10))
	for range 3 {
		status, _ := asked(t, s, requestOf("HEAD", ofVelum+velum.Tag+nsOfSUSE, oldContainerd))
		assert.Equal(t, "404 Not Found", status)
	}
	assert.Equal(t, 1, strings.Count(log.String(), "not a table in JSON"), "said once: %s", log)
	require.NoError(t, os.Remove(s.table.path))
	status, _ := asked(t, s, requestOf("HEAD", ofVelum+velum.Tag+nsOfSUSE, oldContainerd))
	assert.Equal(t, "404 Not Found", status)
	require.NoError(t, os.Rename(saved(t, oneTag()), s.table.path))
	status, _ = asked(t, s, requestOf("HEAD", ofVelum+velum.Tag+nsOfSUSE, oldContainerd))
	assert.Equal(t, "200 OK", status, "the next request has the next table")
}

func TestInvalidRequestIsClosed(t *testing.T) {
	t.Parallel()
	s, _ := server(t, oneTag())
	for name, text := range map[string]string{
		"nothing":       "",
		"TLS":           "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"half a line":   "HEAD /v2",
		"long headers":  "HEAD / HTTP/1.1\r\nA: " + strings.Repeat("a", maxRequest) + "\r\n\r\n",
		"many headers":  "HEAD / HTTP/1.1\r\n" + strings.Repeat("A: a\r\n", maxRequest/6) + "\r\n",
		"another begin": "HELO\r\n\r\n",
	} {
		status, _ := asked(t, s, text)
		assert.Equal(t, "hung up", status, name)
	}
}

func TestHangsUpOn(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]bool{
		"containerd/2.4.2": true, "containerd/v2.0.0-rc.1": true, "containerd/2.1.9+unknown": true, "containerd/10.0": true,
		"containerd/1.6.20~ds1": false, "containerd/v1.7.24": false, "containerd/0.9": false, "": false,
		"cri-o/2.0": false, "x containerd/2.0": false, "containerd/2": false,
	} {
		assert.Equal(t, want, hangsUpOn(agent), agent)
	}
}

// containerd would send kubelet's password to a host that answers 401, and would stop after a redirect.
func TestRefusalsAskForNoLogin(t *testing.T) {
	t.Parallel()
	for _, result := range []Result{Unknown, Refused} {
		for _, agent := range []string{oldContainerd, newContainerd, ""} {
			text := response(result, table.Entry{}, agent)
			assert.Contains(t, []string{"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", ""}, text)
		}
	}
}

// For any request, there are three possible answers, and none asks for a login, redirects or has content. What is served
// net/http reads as the same request.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(requestOf("HEAD", ofVelum+velum.Tag+nsOfSUSE, oldContainerd)))
	f.Add([]byte(requestOf("GET", "/v2/", newContainerd)))
	f.Add([]byte("HEAD * HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc"))
	f.Add([]byte("HEAD " + ofVelum + velum.Tag + nsOfSUSE + " HTTP/1.1\r\nHost: a\r\nhost: b\r\nUSER-agent:x\r\n\r\n"))
	f.Add([]byte("HEAD " + ofVelum + velum.Tag + nsOfSUSE + " HTTP/1.1\nUser-Agent: a\n b\nUser-Agent: c\n\n"))
	served, refused := response(Served, velum, ""), response(Refused, table.Entry{}, "")
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parse(data)
		if err != nil {
			return
		}
		result, entry := answer(r, oneTag())
		if result != Served {
			require.Contains(t, []string{refused, ""}, response(result, entry, r.agent))
			return
		}
		require.Equal(t, served, response(result, entry, r.agent))
		theirs, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(data)))
		require.NoError(t, err)
		require.Equal(t, http.MethodHead, theirs.Method)
		require.Equal(t, r.target, theirs.URL)
		require.Equal(t, r.agent, theirs.UserAgent())
		require.Zero(t, theirs.ContentLength)
	})
}

// A request that could be two, or have a body, is refused.
func TestAmbiguousRequestIsRefused(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{
		"two hosts": "Host: a\r\nHost: b\r\n", "a body": "Content-Length: 3\r\n", "no body": "Content-Length: 0\r\n",
		"chunks": "Transfer-Encoding: chunked\r\n", "a trailer": "Trailer: Expires\r\n",
	} {
		s, _ := server(t, oneTag())
		text := "HEAD " + ofVelum + velum.Tag + nsOfSUSE + " HTTP/1.1\r\n" + more + "\r\n"
		status, _ := asked(t, s, text)
		assert.Equal(t, "404 Not Found", status, name)
	}
}
