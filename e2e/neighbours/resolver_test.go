// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry"
)

// resolverRounds is the number of registries that each version asks.
const resolverRounds = 350

// TestAgentAndContainerdResolveAlike checks that the agent polls and pulls from the same hosts as kubelet's containerd,
// and from no others, whatever the hosts answer.
func TestAgentAndContainerdResolveAlike(t *testing.T) {
	t.Parallel()
	for part, version := range containerds {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			rounds, r := inputs(t, resolverRounds)
			c, top := startContainerd(t, "resolver", part), t.TempDir()
			var servers []*answering
			for n := range 4 { // two mirrors, the registry, and the target of redirects
				servers = append(servers, newAnswering(t, string(rune('a'+n))))
			}
			upstream := servers[2]
			var hides []string
			for _, s := range servers {
				s.elsewhere = servers[3].URL
				hides = append(hides, s.Listener.Addr().String(), s.name)
			}
			outcomes, purposes := map[string]int{}, map[string]int{}
			for n := range rounds {
				dir := filepath.Join(top, fmt.Sprint(n))
				text, about, sent := fmt.Sprintf("server = %q\n", upstream.URL), "", ""
				for i, s := range servers[:3] {
					s.manner = [3]string{}
					for kind := range s.manner {
						if s.manner[kind] = "ok"; r.IntN(3) == 0 {
							s.manner[kind] = oneOf(r, answerNames[kind]...)
						}
					}
					if i < 2 {
						text += fmt.Sprintf("[host.%q]\ncapabilities = %s\n", s.URL, oneOf(r, "['pull', 'resolve']", "['pull', 'resolve']", "['pull']"))
					}
					about += fmt.Sprintf("%s: %v\n", s.name, s.manner)
					sent += s.sent(s, s.manner)
				}
				about = fmt.Sprintf("%d: %s%s", n, text, about)
				put(t, filepath.Join(dir, upstream.Listener.Addr().String(), "hosts.toml"), text)
				ref := release.Reference{Repository: upstream.Listener.Addr().String() + "/app", Tag: "1"}
				theirs := pullOutcome(func() (string, string, error) {
					says := c.ask(containerdAsked{CertsDirs: []string{dir}, Pull: ref.String()}, input{[]string{dir}, sent, hides})
					if says.Err != "" {
						return "", "", errors.New(says.Err)
					}
					return says.Pulled.Digest, says.Pulled.Missing, nil
				})
				ours := pullOutcome(func() (string, string, error) { return pulledByAgent(t.Context(), dir, ref) })
				if why := onPurposeAnswers(version, servers); why != "" && theirs != ours {
					purposes[why]++
					continue
				}
				outcomes[strings.Fields(theirs)[0]]++
				assert.Equal(t, theirs, ours, about)
			}
			t.Logf("%v, on purpose: %v", outcomes, purposes)
			assert.Greater(t, len(outcomes), 2)
		})
	}
}

// onPurposeAnswers returns why the agent intentionally treats the answers differently.
func onPurposeAnswers(version string, servers []*answering) string {
	for _, s := range servers {
		head, get := s.manner[0], s.manner[1]
		switch {
		case slices.Contains(s.manner[:], "html"):
			return "a page for people is no answer of a registry"
		case slices.ContainsFunc(s.manner[:], func(m string) bool { return m == "201" || m == "204" || m == "206" }):
			return "no answer but 200"
		case strings.HasPrefix(head, "no digest") && strings.HasSuffix(get, " digest"):
			return "a host that names another digest than that of its content"
		case head == "no type" || head == "large":
			return "of a pull, type and size are asked for again"
		case strings.HasPrefix(version, "1.") && get != "ok" && (strings.HasPrefix(head, "no digest") || head == "chunked"):
			return "1.x takes the digest of an error page"
		case head == "chunked" && get != "ok":
			return "a poll needs no size"
		}
	}
	return ""
}

// pullOutcome describes the result of a pull in one word: the digest, not resolved, or incomplete.
func pullOutcome(pull func() (digest, missing string, err error)) string {
	d, missing, err := pull()
	switch {
	case err != nil:
		return "unresolved"
	case missing != "":
		return "incomplete " + d
	default:
		return "pulled " + d
	}
}

// pulledByAgent polls a tag and pulls its image.
func pulledByAgent(ctx context.Context, certsDir string, ref release.Reference) (named, missing string, err error) {
	source := registry.New(registry.Options{CertsDirs: []string{certsDir}})
	defer source.Close()
	resolved, err := source.Resolve(ctx, ref)
	if err != nil {
		return "", "", err
	}
	named = resolved.Digest.String()
	desc, err := source.Locate(ctx, ref.Repository, resolved.Digest)
	if err != nil {
		return named, err.Error(), nil
	}
	body, err := fetched(ctx, source, ref.Repository, desc)
	if err != nil {
		return named, err.Error(), nil
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(body, &manifest); err != nil {
		return named, err.Error(), nil
	}
	for _, blob := range append([]ocispec.Descriptor{manifest.Config}, manifest.Layers...) {
		if _, err := fetched(ctx, source, ref.Repository, blob); err != nil {
			return named, err.Error(), nil
		}
	}
	return named, "", nil
}

// fetched reads a blob to its end, as the content store does.
func fetched(ctx context.Context, source *registry.Registry, repository string, desc ocispec.Descriptor) ([]byte, error) {
	body, err := source.Fetch(ctx, repository, desc)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err == nil && digest.FromBytes(data) != desc.Digest {
		err = errors.New("another digest")
	}
	return data, err
}

// answering is a registry with one image of its own, which answers each kind of request in one way.
type answering struct {
	*httptest.Server
	name, elsewhere string
	content         map[string][]byte // by last path element
	tag             string
	manner          [3]string // of HEAD of a manifest, GET of a manifest, GET of a blob
}

const ociManifest = ocispec.MediaTypeImageManifest

func newAnswering(t *testing.T, name string) *answering {
	t.Helper()
	a := &answering{name: name, content: map[string][]byte{}}
	add := func(kind, text string) ocispec.Descriptor {
		d := digest.FromString(text)
		a.content[d.String()] = []byte(text)
		return ocispec.Descriptor{MediaType: kind, Digest: d, Size: int64(len(text))}
	}
	// All hosts have the same blobs, but different manifests, so that the digest shows which host was used.
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ociManifest, Config: add(ocispec.MediaTypeImageConfig, "{}"),
		Layers: []ocispec.Descriptor{add(ocispec.MediaTypeImageLayer, "layer")}, Annotations: map[string]string{"of": name},
	})
	require.NoError(t, err)
	a.content["1"] = manifest
	a.tag = digest.FromBytes(manifest).String()
	a.content[a.tag] = manifest
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

// The answers to a HEAD of a manifest, to a GET of one, and to a GET of a blob, besides "ok".
var answerNames = func() [3][]string {
	all := []string{
		"400", "401", "401 basic", "401 bearer", "401 bearer access_token", "401 bearer 401", "401 bearer 403", "401 bearer 500", "401 bearer none", "401 bearer html", "401 bearer again",
		"403", "404", "408", "410", "429", "429 retry", "429 date", "451", "500", "502", "503", "503 retry", "504",
		"201", "204", "206", "304", "html", "301", "302", "303", "307", "308", "redirect loop", "redirect relative", "redirect bad", "redirect 404", "redirect 403", "redirect bearer", "chunked",
	}
	manifest := append([]string{"no digest", "no digest chunked", "bad digest", "other digest", "type octet", "type json", "no type", "type params", "large", "digest sha512"}, all...)
	return [3][]string{append([]string{"405", "501"}, manifest...), append([]string{"other body", "short"}, manifest...), append([]string{"other body", "short", "type octet"}, all...)}
}()

// sent describes what a server with this image sends to those who pull it, without and with a token.
func (a *answering) sent(server http.Handler, manners [3]string) string {
	var all strings.Builder
	ask := func(method, path, login string) {
		r := httptest.NewRequest(method, path, nil)
		r.Host = a.Listener.Addr().String()
		r.Header.Set("Authorization", login)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Fprintf(&all, "%s %s %q: %d %q\n%s\n", method, path, login, w.Code, w.Header(), w.Body)
	}
	for _, login := range []string{"", "Bearer t", "Bearer anonymous"} {
		ask(http.MethodHead, "/v2/team/app/manifests/1", login)
		ask(http.MethodGet, "/v2/team/app/manifests/1", login)
		for _, name := range slices.Sorted(maps.Keys(a.content)) {
			ask(http.MethodGet, "/v2/team/app/blobs/"+name, login)
		}
	}
	for _, manner := range manners {
		if _, as, is := strings.Cut(manner, "bearer"); is {
			ask(http.MethodGet, "/token?as="+url.QueryEscape(strings.TrimSpace(as)), "")
		}
	}
	return all.String()
}

func (a *answering) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/token" {
		a.giveToken(w, req.URL.Query().Get("as"))
		return
	}
	last := req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:]
	kind := 2
	if strings.Contains(req.URL.Path, "/manifests/") {
		kind = 1
		if req.Method == http.MethodHead {
			kind = 0
		}
	}
	manner := a.manner[kind]
	if req.URL.Query().Get("led") != "" || manner == "" {
		manner = "ok"
	}
	body, is := a.content[last]
	if !is {
		http.NotFound(w, req)
		return
	}
	a.answer(w, req, manner, body, kind)
}

func (a *answering) giveToken(w http.ResponseWriter, as string) {
	switch as {
	case "401", "403", "500":
		code, _ := strconv.Atoi(as)
		w.WriteHeader(code)
	case "none":
		_, _ = io.WriteString(w, "{}")
	case "html":
		_, _ = io.WriteString(w, "<html>")
	case "access_token":
		_, _ = io.WriteString(w, `{"access_token": "t", "expires_in": 300}`)
	default:
		_, _ = io.WriteString(w, `{"token": "t"}`)
	}
}

func (a *answering) answer(w http.ResponseWriter, req *http.Request, manner string, body []byte, kind int) {
	h, words := w.Header(), strings.Fields(manner)
	if kind < 2 {
		h.Set("Content-Type", ociManifest)
		h.Set("Docker-Content-Digest", digest.FromBytes(body).String())
	}
	status := http.StatusOK
	rest := strings.Join(words[1:], " ")
	if code, err := strconv.Atoi(words[0]); err == nil {
		status = code
	}
	switch {
	case status == http.StatusUnauthorized && strings.HasPrefix(rest, "bearer"):
		if strings.HasPrefix(req.Header.Get("Authorization"), "Bearer ") && rest != "bearer again" {
			status = http.StatusOK
			break
		}
		h.Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token?as=%s",service="s",scope="repository:app:pull"`, a.URL, strings.TrimPrefix(strings.TrimPrefix(rest, "bearer"), " ")))
	case rest == "basic":
		h.Set("WWW-Authenticate", `Basic realm="r"`)
	case rest == "retry":
		h.Set("Retry-After", "1")
	case rest == "date":
		h.Set("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT")
	case status >= 300 && status < 400 && status != http.StatusNotModified:
		h.Set("Location", a.elsewhere+req.URL.Path+"?led=1")
	case words[0] == "redirect":
		status = http.StatusTemporaryRedirect
		switch rest {
		case "loop":
			h.Set("Location", req.URL.RequestURI())
		case "relative":
			h.Set("Location", req.URL.Path+"?led=1")
		case "bad":
			h.Set("Location", "http://%zz/")
		case "404":
			h.Set("Location", a.elsewhere+"/gone")
		case "403", "bearer":
			h.Set("Location", a.elsewhere+req.URL.Path+"?led=1")
		}
	case words[0] == "html":
		h.Set("Content-Type", "text/html")
		h.Del("Docker-Content-Digest")
		body = []byte("<html>login</html>")
	case words[0] == "no" && words[1] == "digest":
		h.Del("Docker-Content-Digest")
	case manner == "bad digest":
		h.Set("Docker-Content-Digest", "sha256:short")
	case manner == "other digest":
		h.Set("Docker-Content-Digest", digest.FromString("other").String())
	case manner == "digest sha512":
		h.Set("Docker-Content-Digest", digest.SHA512.FromBytes(body).String())
	case manner == "type octet":
		h.Set("Content-Type", "application/octet-stream")
	case manner == "type json":
		h.Set("Content-Type", "application/json")
	case manner == "type params":
		h.Set("Content-Type", ociManifest+"; charset=utf-8")
	case manner == "no type":
		h["Content-Type"] = nil
	case manner == "other body":
		body = []byte(strings.Repeat("x", len(body)))
	case manner == "short":
		body = body[:len(body)-1]
	case manner == "large":
		h.Set("Content-Length", strconv.Itoa(64<<20))
	}
	if status >= 400 {
		h.Del("Docker-Content-Digest")
		body = []byte(`{"errors":[]}`)
	}
	if strings.HasSuffix(manner, "chunked") {
		h.Set("Transfer-Encoding", "chunked")
	} else if h.Get("Content-Length") == "" && status != http.StatusNoContent && status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	if req.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}
