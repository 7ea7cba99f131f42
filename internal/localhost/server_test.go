// SPDX-License-Identifier: Apache-2.0

package localhost

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

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
)

const (
	oldContainerd, newContainerd = "containerd/1.7.24", "containerd/v2.1.9"

	ofVelum  = "/v2/caasp/v4/velum/manifests/"
	nsOfSUSE = "?ns=registry.suse.com"
)

// asked sends a request to a server on a table, and returns what came back: its status, or "hung up".
func asked(t *testing.T, s *Server, request string) (status string, header http.Header) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			s.serve(conn, func() {})
			err = conn.Close()
		}
		served <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	_ = conn.(*net.TCPConn).CloseWrite() // the server may have hung up
	raw, err := io.ReadAll(conn)
	if !errors.Is(err, syscall.ECONNRESET) { // what was not read is thrown away
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

func server(t *testing.T, table ownhost.Table) (s *Server, log *bytes.Buffer) {
	t.Helper()
	log = &bytes.Buffer{}
	return NewServer(saved(t, table), t.TempDir(), slog.New(slog.NewTextHandler(log, nil))), log
}

func request(method, target, agent string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n\r\n", method, target, ownhost.Address, agent)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, target string
		want           Result
	}{
		"a tag of the table":           {"HEAD", ofVelum + velum.Tag + nsOfSUSE, Served},
		"a digest of the table":        {"HEAD", ofVelum + velum.Digest.String() + nsOfSUSE, Served},
		"an unknown tag":               {"HEAD", ofVelum + "4.0.0-rev2" + nsOfSUSE, Unknown},
		"an unknown digest":            {"HEAD", ofVelum + digest.FromString("other").String() + nsOfSUSE, Unknown},
		"a digest of another name":     {"HEAD", "/v2/caasp/v4/etcd/manifests/" + velum.Digest.String() + nsOfSUSE, Unknown},
		"another registry":             {"HEAD", ofVelum + velum.Tag + "?ns=docker.io", Unknown},
		"no registry":                  {"HEAD", ofVelum + velum.Tag, Refused},
		"two registries":               {"HEAD", ofVelum + velum.Tag + nsOfSUSE + "&ns=docker.io", Refused},
		"a broken query":               {"HEAD", ofVelum + velum.Tag + nsOfSUSE + "&%zz", Refused},
		"a GET":                        {"GET", ofVelum + velum.Tag + nsOfSUSE, Refused},
		"a POST":                       {"POST", ofVelum + velum.Tag + nsOfSUSE, Refused},
		"a blob":                       {"HEAD", "/v2/caasp/v4/velum/blobs/" + velum.Digest.String() + nsOfSUSE, Refused},
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
				status, header := asked(t, s, request(c.method, c.target, agent))
				if c.want != Served {
					assert.Equal(t, refusal, status, agent)
					continue
				}
				assert.Equal(t, "200 OK", status, agent)
				assert.Equal(t, velum.Digest.String(), header.Get("Docker-Content-Digest"))
				assert.Equal(t, velum.MediaType, header.Get("Content-Type"))
				assert.Equal(t, fmt.Sprint(velum.Size), header.Get("Content-Length"))
			}
			counts, _, err := AnswersAt(filepath.Join(s.answersDir, AnswersFile)).Get()
			require.NoError(t, err)
			assert.Equal(t, 3, map[Result]int{Served: counts.Served, Unknown: counts.Unknown, Refused: counts.Refused}[c.want])
			assert.Equal(t, c.want == Served, strings.Contains(log.String(), "manifest answered from the node"), log)
		})
	}
}

// Without a table nothing is answered, and the client hears the same as of an unknown tag.
func TestATableThatCannotBeUsedAnswersNothing(t *testing.T) {
	t.Parallel()
	s, log := server(t, oneTag())
	require.NoError(t, os.Truncate(s.table.Path, 10))
	for range 3 {
		status, _ := asked(t, s, request("HEAD", ofVelum+velum.Tag+nsOfSUSE, oldContainerd))
		assert.Equal(t, "404 Not Found", status)
	}
	assert.Equal(t, 1, strings.Count(log.String(), "no JSON of a table"), "said once: %s", log)
	require.NoError(t, os.Remove(s.table.Path))
	status, _ := asked(t, s, request("HEAD", ofVelum+velum.Tag+nsOfSUSE, oldContainerd))
	assert.Equal(t, "404 Not Found", status)
	require.NoError(t, NewStore(filepath.Dir(s.table.Path)).Save(t.Context(), oneTag()))
	status, _ = asked(t, s, request("HEAD", ofVelum+velum.Tag+nsOfSUSE, oldContainerd))
	assert.Equal(t, "200 OK", status, "the next request has the next table")
}

func TestWhatIsNoRequestIsHungUpOn(t *testing.T) {
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

// containerd would send kubelet's password to a host that answers 401, and not go on after a redirect.
func TestRefusalsDrawNoLogin(t *testing.T) {
	t.Parallel()
	for _, result := range []Result{Unknown, Refused} {
		for _, agent := range []string{oldContainerd, newContainerd, ""} {
			text := response(result, ownhost.Entry{}, agent)
			assert.Contains(t, []string{"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", ""}, text)
		}
	}
}

// Whatever is sent, the answer is one of three, and none of them draws a login, sends elsewhere or has content.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(request("HEAD", ofVelum+velum.Tag+nsOfSUSE, oldContainerd)))
	f.Add([]byte(request("GET", "/v2/", newContainerd)))
	f.Add([]byte("HEAD * HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc"))
	served, refused := response(Served, velum, ""), response(Refused, ownhost.Entry{}, "")
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := readRequest(bytes.NewReader(data))
		if err != nil {
			return
		}
		switch result, entry := answer(r, oneTag()); result {
		case Served:
			require.Equal(t, served, response(result, entry, r.UserAgent()))
			require.Equal(t, http.MethodHead, r.Method)
		default:
			require.Contains(t, []string{refused, ""}, response(result, entry, r.UserAgent()))
		}
	})
}
