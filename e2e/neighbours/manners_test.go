// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
	"github.com/kubic-project/image-update-agent/internal/registry"
)

// manner describes how a registry answers. The zero value lists tags in one page and wants no token.
type manner struct {
	name   string
	source string // where the behaviour is recorded
	token  string // the key of the token in the token server's response; empty: no token needed
	page   int    // maximum of tags per page; 0: all
	link   func(repository string, last string, page int) string
	order  func(r *rand.Rand, tags []string)
	list   int      // status of a list; 0: 200
	hidden bool     // the list lacks existing tags
	sent   []string // headers of each response: name, value, ...

	noDigest, ledManifests, ledBlobs bool
	leads                            bool // redirects each request, as lscr.io does to GHCR
	brokenLink                       bool // a Link has a wrong target
}

func shuffled(r *rand.Rand, tags []string) {
	r.Shuffle(len(tags), func(i, j int) { tags[i], tags[j] = tags[j], tags[i] })
}

func linkTo(form string) func(string, string, int) string {
	return func(repository, last string, page int) string {
		return strings.NewReplacer("REPOSITORY", repository, "LAST", url.QueryEscape(last), "PAGE", strconv.Itoa(page)).Replace(form)
	}
}

const relativeLink = `</v2/REPOSITORY/tags/list?last=LAST&n=PAGE>; rel="next"`

var ghcr = manner{
	name: "GHCR", token: "token", page: 9, link: linkTo(relativeLink), order: shuffled,
	source: "https://github.com/getwud/wud/issues/143",
}

// manners are publicly recorded behaviours. RMT's nginx is tested for real (e2e/registry).
var manners = []manner{
	{
		name: "registry.k8s.io", ledManifests: true, ledBlobs: true,
		source: "https://github.com/kubernetes/registry.k8s.io/blob/main/cmd/archeio/docs/request-handling.md",
	},
	ghcr,
	{
		name: "lscr.io", leads: true,
		source: "https://github.com/rpardini/docker-registry-proxy/issues/158", // and wud/issues/143: ghcr.io's 401
	},
	{
		name: "GitLab", token: "token", page: 7, link: linkTo(relativeLink),
		source: "https://github.com/goharbor/harbor/issues/23753", // a token without expires_in and issued_at
	},
	{
		name: "Quay", token: "token", page: 5, link: linkTo(`</v2/REPOSITORY/tags/list?n=PAGE&next_page=LAST>; rel="next"`), order: shuffled,
		source: "https://github.com/camallo/dkregistry-rs/pull/236",
	},
	{
		name: "Harbor's proxy cache", token: "token", hidden: true,
		source: "https://github.com/goharbor/harbor/issues/15513", // lists only tags that it has served
	},
	{
		name: "Artifactory", page: 5, link: linkTo(`</v2/other/tags/list?last=LAST&n=PAGE>; rel="next"`), brokenLink: true,
		source: "https://github.com/renovatebot/renovate/issues/15030", // the Link lacks the key of the repository
	},
	{
		name: "Nexus proxy", page: 5, link: linkTo(`<BASE/v2/REPOSITORY/tags/list?n=PAGE&last=LAST>; rel="next"`),
		source: "https://github.com/sonatype/nexus-public/issues/117",
	},
	{
		name: "Nexus connector", page: 5, brokenLink: true,
		link:   linkTo(`<BASE/repository/proxy/v2/REPOSITORY/tags/list?n=PAGE&last=LAST>; rel="next"`),
		source: "https://github.com/sonatype/nexus-public/issues/1011", // the Link gets a 400
	},
	{
		name: "ECR", list: http.StatusUnauthorized,
		source: "https://github.com/ivanilves/lstags/issues/222", // allows pulls, but no lists
	},
	{
		name: "Docker Hub", token: "token", page: 10, link: linkTo(relativeLink),
		sent:   []string{"RateLimit-Limit", "100;w=21600", "RateLimit-Remaining", "0;w=21600", "Docker-RateLimit-Source", "192.0.2.1"},
		source: "https://github.com/docker/docs/pull/11648",
	},
	{
		name: "registry.redhat.io", token: "access_token", noDigest: true,
		source: "https://github.com/ivanilves/lstags/issues/186",
	},
}

// TestEachMannerOfRegistries checks for each manner that node and publisher list the tags that go-containerregistry
// lists, also if a Link stops the latter, and that a pull of the node gets what containerd gets.
func TestEachMannerOfRegistries(t *testing.T) {
	t.Parallel()
	c := startContainerd(t, "manners", "containerd-reads")
	for _, m := range manners {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			rounds, r := inputs(t, 90)
			publisher, err := store.New(store.Options{PlainHTTP: true})
			require.NoError(t, err)
			for n := range rounds {
				s := newMannered(t, m, r)
				repository := s.Listener.Addr().String() + "/team/app"
				dir := t.TempDir()
				put(t, filepath.Join(dir, s.Listener.Addr().String(), "hosts.toml"), fmt.Sprintf("server = %q\n", s.URL))
				about := fmt.Sprintf("%d: %d tags", n, len(s.tags))

				repo, err := name.NewRepository(repository, name.Insecure)
				require.NoError(t, err)
				theirs, theirErr := remote.List(repo, remote.WithContext(t.Context()))
				node := registry.New(registry.Options{CertsDirs: []string{dir}})
				known := []string{"1"}
				if m.hidden {
					known = nil // else the node finds out itself, and asks the next host
					partial, err := node.TagsHaving(t.Context(), repository, []string{"1"})
					require.ErrorContains(t, err, "not 1, which exists", about)
					assert.ElementsMatch(t, s.tags, partial, about)
				}
				nodes, nodeErr := node.TagsHaving(t.Context(), repository, known)
				publishers, publisherErr := publisher.Tags(t.Context(), repository)
				switch {
				case m.list != 0:
					require.Error(t, theirErr, about)
					require.Error(t, nodeErr, about)
					require.Error(t, publisherErr, about)
				case m.leads: // go-containerregistry rejects a realm at another private address
					require.NoError(t, nodeErr, about)
					assert.ElementsMatch(t, s.tags, nodes, about)
				default:
					// Intentional: the agent uses the query of a Link, and not its host and path.
					assert.Equal(t, m.brokenLink && len(s.tags) > m.page, theirErr != nil, "%v: %s", theirErr, about)
					require.NoError(t, nodeErr, about)
					require.NoError(t, publisherErr, about)
					assert.ElementsMatch(t, s.tags, nodes, about)
					assert.ElementsMatch(t, s.tags, publishers, about)
					if theirErr == nil {
						assert.ElementsMatch(t, theirs, nodes, about)
					}
				}

				ref := release.Reference{Repository: repository, Tag: "1"}
				want := pullOutcome(func() (string, string, error) {
					says := c.ask(containerdAsked{CertsDirs: []string{dir}, Pull: ref.String()},
						input{[]string{dir}, s.shows(), s.addresses()})
					if says.Err != "" {
						return "", "", fmt.Errorf("%s", says.Err)
					}
					return says.Pulled.Digest, says.Pulled.Missing, nil
				})
				assert.Equal(t, want, "pulled "+s.image.tag, about)
				assert.Equal(t, want, pullOutcome(func() (string, string, error) { return pulledByAgent(t.Context(), dir, ref) }), about)
				if !m.leads {
					d, err := publisher.Head(t.Context(), repository, "1")
					require.NoError(t, err, about)
					assert.Equal(t, s.image.tag, d.String(), about)
				}
				node.Close()
				s.Close()
			}
		})
	}
}

// mannered is a registry with a manner.
type mannered struct {
	*httptest.Server
	manner
	image *answering
	tags  []string
	led   *mannered // the target of redirects
}

func newMannered(t *testing.T, m manner, r *rand.Rand) *mannered {
	t.Helper()
	s := &mannered{manner: m, image: newAnswering(t, m.name)}
	if !m.hidden {
		s.tags = append(s.tags, "1")
	}
	for n := range r.IntN(30) {
		s.tags = append(s.tags, fmt.Sprintf("%d.%d-rev%d", 2+n/10, n%10, r.IntN(3)))
	}
	slices.Sort(s.tags)
	if m.order != nil {
		m.order(r, s.tags)
	}
	if m.leads {
		s.led = newMannered(t, ghcr, r)
		s.tags, s.image = s.led.tags, s.led.image
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *mannered) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	for n := 0; n < len(s.sent); n += 2 {
		w.Header().Set(s.sent[n], s.sent[n+1])
	}
	path := req.URL.Path
	switch {
	case s.led != nil:
		http.Redirect(w, req, s.led.URL+req.URL.RequestURI(), http.StatusTemporaryRedirect)
	case path == "/token":
		_ = json.NewEncoder(w).Encode(map[string]string{s.token: "anonymous"})
	case s.token != "" && req.Header.Get("Authorization") != "Bearer anonymous":
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="registry",scope="repository:team/app:pull"`, s.URL))
		s.refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
	case path == "/v2/":
		w.WriteHeader(http.StatusOK)
	case path == "/v2/team/app/tags/list":
		s.answerList(w, req)
	case strings.HasPrefix(path, "/led/"):
		s.image.answer(w, req, "ok", s.image.content[path[strings.LastIndexByte(path, '/')+1:]], 1)
	case strings.HasPrefix(path, "/v2/team/app/manifests/"), strings.HasPrefix(path, "/v2/team/app/blobs/"):
		s.answerContent(w, req)
	case strings.HasPrefix(path, "/repository/"):
		s.refuse(w, http.StatusBadRequest, "UNSUPPORTED")
	default:
		s.refuse(w, http.StatusNotFound, "NAME_UNKNOWN")
	}
}

// shows describes what the server, and that of its redirects, send to those who pull the image.
func (s *mannered) shows() string {
	all := s.image.sent(s, [3]string{})
	if s.led != nil {
		all += s.image.sent(s.led, [3]string{})
	}
	return all
}

// addresses returns those of the servers with their names.
func (s *mannered) addresses() []string {
	all := []string{s.Listener.Addr().String(), "registry", s.image.Listener.Addr().String(), "image"}
	if s.led != nil {
		all = append(all, s.led.Listener.Addr().String(), "led")
	}
	return all
}

func (s *mannered) refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":"m"}]}`, code)
}

func (s *mannered) answerContent(w http.ResponseWriter, req *http.Request) {
	last := req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:]
	body, is := s.image.content[last]
	isManifest := strings.Contains(req.URL.Path, "/manifests/")
	switch {
	case !is:
		s.refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN")
	case isManifest && s.ledManifests, !isManifest && s.ledBlobs:
		http.Redirect(w, req, "/led/"+last+"?X-Signature=s", http.StatusTemporaryRedirect)
	case isManifest && s.noDigest:
		s.image.answer(w, req, "no digest", body, 1)
	case isManifest:
		s.image.answer(w, req, "ok", body, 1)
	default:
		w.Header().Set("Docker-Content-Digest", digest.FromBytes(body).String())
		_, _ = w.Write(body)
	}
}

// answerList sends a page of the list: the tags after the one that the query names.
func (s *mannered) answerList(w http.ResponseWriter, req *http.Request) {
	if s.list != 0 {
		w.Header().Set("WWW-Authenticate", `Basic realm="ecr"`)
		s.refuse(w, s.list, "DENIED")
		return
	}
	query, left := req.URL.Query(), s.tags
	for _, name := range []string{"last", "next_page"} {
		if n := slices.Index(left, query.Get(name)); n >= 0 {
			left = left[n+1:]
		}
	}
	if s.page > 0 && len(left) > s.page {
		left = left[:s.page]
		w.Header().Set("Link", strings.Replace(s.link("team/app", left[len(left)-1], s.page), "BASE", s.URL, 1))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": "team/app", "tags": left})
}
