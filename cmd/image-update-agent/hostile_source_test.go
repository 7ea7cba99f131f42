// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/node/state"
	"github.com/kubic-project/image-update-agent/internal/registry"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
	"github.com/kubic-project/image-update-agent/tags"
)

const badHost, badImage = "bad.test", "bad.test/app"

// hostileHost answers every request, mostly with an image that is whole, whose texts, numbers and times are drawn.
type hostileHost struct {
	mu       sync.Mutex
	draw     *rand.Rand
	odd      int // the value that is not the usual one; the others let it come as far as it can
	what     int // it is instead
	manifest string
	config   string
}

func newHostileHost(odd, what int) *hostileHost {
	h := &hostileHost{draw: rand.New(rand.NewPCG(uint64(odd), uint64(what))), odd: odd, what: what}
	h.config = fmt.Sprintf(`{"os": "linux", "architecture": "amd64", "created": %s, "config": {"Labels": {
		"org.opencontainers.image.version": %s, "org.opensuse.reference": %s}}, "history": %s}`,
		h.value(`"2026-01-01T00:00:00Z"`), h.value(`"1"`), h.value(`"bad.test/app:1"`), h.value(`[]`))
	h.manifest = fmt.Sprintf(`{"schemaVersion": %s, "mediaType": %s, "config": {
		"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "%s", "size": %d}, "layers": %s}`,
		h.value("2"), h.value(`"application/vnd.oci.image.manifest.v1+json"`), digest.FromString(h.config), len(h.config), h.value("[]"))
	return h
}

// hostileValues are what nobody expects.
func hostileValues() []string {
	return []string{
		strings.Repeat("1", 100_000), `"` + strings.Repeat(`\u001b[2J\u202e`, 5000) + `"`, `"\ud800\n"`, "\"\xff\xfe\"",
		`"9999-12-31T23:59:59-12:00"`, `"0000-01-01T00:00:00+12:00"`, `"2999-01-01T00:00:00Z"`, `[{"size": -1}]`,
		strings.Repeat("[", 2000) + strings.Repeat("]", 2000), "null", "1e999", `{"a":` + strings.Repeat("9", 50_000) + `}`,
	}
}

// hostilePlaces is how many values an image is made of, and one more for an image that is as it should be.
const hostilePlaces = 8

// value is the usual one, but at the odd place, and now and then in what is asked later.
func (h *hostileHost) value(usual string) string {
	all := hostileValues()
	h.odd--
	switch {
	case h.odd == -1:
		return all[h.what]
	case h.odd < -1 && h.draw.IntN(10) == 0:
		return all[h.draw.IntN(len(all))]
	}
	return usual
}

func (h *hostileHost) RoundTrip(req *http.Request) (*http.Response, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	body, header, status := h.manifest, http.Header{"Content-Type": {"application/vnd.oci.image.manifest.v1+json"}}, 200
	header.Set("Docker-Content-Digest", digest.FromString(body).String())
	switch {
	case strings.HasSuffix(req.URL.Path, "/tags/list"):
		body = `{"name": "app", "tags": ["1.0.0-rev1", "1.0.0-rev2", ` + h.value(`"1.0.0"`) + `]}`
	case strings.Contains(req.URL.Path, "/blobs/"):
		body = h.config
	}
	if h.draw.IntN(20) == 0 {
		status = []int{200, 302, 401, 404, 429, 500}[h.draw.IntN(6)]
		line := strings.Trim(h.value("x"), `"`)
		for _, name := range []string{"Content-Type", "Docker-Content-Digest", "Retry-After", "Location", "Link", "Www-Authenticate"} {
			header.Set(name, line[:min(len(line), 9000)])
		}
		body = h.value(body)
	}
	if h.draw.IntN(50) == 0 {
		return nil, fmt.Errorf("x509: certificate is valid for %s", h.value(hostile))
	}
	if req.Method == http.MethodHead {
		body = ""
	}
	return &http.Response{
		StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: req,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)),
	}, nil
}

// two is a source of which one repository is behind a hostile host.
type two struct {
	*agenttest.Registry
	bad *registry.Registry
}

func (s two) Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	if ref.Repository == badImage {
		return s.bad.Resolve(ctx, ref)
	}
	return s.Registry.Resolve(ctx, ref)
}

func (s two) Tags(ctx context.Context, repository string) ([]string, error) {
	if repository == badImage {
		return s.bad.Tags(ctx, repository)
	}
	return s.Registry.Tags(ctx, repository)
}

func (s two) Describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error) {
	if repository == badImage {
		return s.bad.Describe(ctx, repository, d)
	}
	return s.Registry.Describe(ctx, repository, d)
}

// Whatever a source answers: record and status are written and can be read again, they stay small, and status, hold,
// apply and rollback of another pod work.
func TestAHostileSourceStopsNothingElse(t *testing.T) {
	t.Parallel()
	certs := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(certs, badHost), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(certs, badHost, "hosts.toml"), []byte("server = \"http://"+badHost+"\"\n"), 0o600))
	for n := range hostilePlaces * len(hostileValues()) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { besideHost(t, certs, newHostileHost(n%hostilePlaces, n/hostilePlaces)) })
		})
	}
}

func besideHost(t *testing.T, certs string, host *hostileHost) {
	t.Helper()
	dir := t.TempDir()
	src := registry.New(registry.Options{
		CertsDirs: []string{certs}, Options: transport.Options{Wrap: func(http.RoundTripper) http.RoundTripper { return host }},
	})
	const velum = caasp + "velum"
	world := agenttest.NewWorld()
	world.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision} }
	first := world.Registry.Release(velum, "4.0.0", 1, "1.1")
	for name, image := range map[string]string{"velum": velum + ":4.0.0-rev1", "bad": badImage + ":1.0.0-rev1"} {
		data := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  containers:\n  - name: " + name +
			"\n    image: " + image + "\n    imagePullPolicy: Always\n"
		world.Node.PutTemplate(name+".yaml", []byte(data))
		world.Node.PutPodManifest(name+".yaml", []byte(data))
	}
	world.Node.Sync()
	next := world.Registry.Release(velum, "4.0.0", 2, "1.1")
	var log bytes.Buffer
	a := world.Agent()
	a.Source, a.Now, a.Log = two{world.Registry, src}, time.Now, slog.New(slog.NewTextHandler(&log, nil))
	store := state.New(dir, dir, a.Log)
	a.Recorder = store

	for range 3 {
		_, err := a.Cycle(t.Context(), source.PollAll)
		require.NoError(t, err)
	}
	_, _, err := a.Hold(t.Context(), []string{"bad.yaml"}, false, record.PersonHold{})
	require.NoError(t, err)
	out, s, err := a.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("velum")})
	require.NoError(t, err)
	require.Len(t, out, 1)
	require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	runsVelum(t, world, next)
	var text bytes.Buffer
	require.NoError(t, newApp(streams{out: &text}).printStatus(s))
	_, err = store.Load(t.Context())
	require.NoError(t, err)
	_, err = state.ReadStatus(dir, dir)
	require.NoError(t, err)
	out, _, err = a.Rollback(t.Context(), plan.Named("velum"))
	require.NoError(t, err)
	require.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
	runsVelum(t, world, first)

	assert.Empty(t, s.Dropped, "nothing has to be left out")
	for _, name := range []string{"record.json", "status.json"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Less(t, len(data), 64<<10, name)
	}
	aside, err := filepath.Glob(filepath.Join(dir, "*.aside"))
	require.NoError(t, err)
	assert.Empty(t, aside)
	for line := range strings.Lines(log.String()) {
		assert.Less(t, len(line), 4<<10)
	}
}

func runsVelum(t *testing.T, world *agenttest.World, r release.Release) {
	t.Helper()
	c, ok := world.Node.Container("velum.yaml", "velum")
	require.True(t, ok)
	require.Equal(t, r.Digest, c.Digests[0])
}
