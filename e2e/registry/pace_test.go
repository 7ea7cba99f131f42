// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// wish is a host's response that asks clients to wait, and the time from which they may send requests again.
type wish struct {
	status int
	date   bool // Retry-After as a date instead of seconds
	wait   time.Duration

	lock  sync.Mutex
	until time.Time // zero: not sent yet
}

// refuse is the Intercept of a wish: it refuses the first request for a manifest, and passes all others on.
func (w *wish) refuse(rw http.ResponseWriter, r *http.Request) bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	if !w.until.IsZero() || !strings.Contains(r.URL.Path, "/manifests/") {
		return false
	}
	w.until = time.Now().Add(w.wait)
	after := strconv.Itoa(int(w.wait / time.Second))
	if w.date {
		w.until = w.until.Truncate(time.Second)
		after = w.until.UTC().Format(http.TimeFormat)
	}
	rw.Header().Set("Retry-After", after)
	rw.WriteHeader(w.status)
	return true
}

// told waits until a request has been refused.
func (w *wish) told(t *testing.T) time.Time {
	t.Helper()
	var until time.Time
	node.Eventually(t, "a refusal", story.Ready, func() error {
		w.lock.Lock()
		defer w.lock.Unlock()
		if until = w.until; until.IsZero() {
			return fmt.Errorf("nobody asks")
		}
		return nil
	})
	return until
}

// hour makes a host ask for an hour of rest.
func hour(r *node.Registry, status int, date bool) *wish {
	w := &wish{status: status, date: date, wait: time.Hour}
	r.Intercept(w.refuse)
	r.Forget()
	return w
}

// sourceAt returns the status of a repository.
func sourceAt(t *testing.T, s status.Status, repository string) status.SourceStatus {
	t.Helper()
	for _, source := range s.Sources {
		if source.Repository == repository {
			return source
		}
	}
	require.FailNow(t, "not in the status", "%s: %+v", repository, s.Sources)
	return status.SourceStatus{}
}

// TestRestOfAnHour checks that the agent sends one request to hosts that ask for an hour of rest, reports them with the
// time of the next poll, and asks them again for a person. It polls all other hosts as before, among them the next host
// of a hosts.toml in place of the first.
func TestRestOfAnHour(t *testing.T) {
	t.Parallel()
	const name = "registry.example.com/demo/app"
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	seconds, date, busy, mirror, upstream := n.StartRegistry(false), n.StartRegistry(false), n.StartRegistry(false),
		n.StartRegistry(false), n.StartRegistry(false)
	all := []*node.Registry{seconds, date, busy, mirror, upstream, n.Registry}
	for i, r := range all {
		r.Push("demo/app", node.Image{}, "1.0.0-rev1")
		n.WriteFile(fmt.Sprintf("%sapp%d.yaml", story.TemplateDir, i), story.PodYAML(fmt.Sprintf("app%d", i), r.Ref("demo/app:1.0.0-rev1")))
	}
	n.WriteHosts("registry.example.com", mirror, upstream)
	n.WriteFile(story.TemplateDir+"app3.yaml", story.PodYAML("app3", name+":1.0.0-rev1"))
	n.WriteFile(story.TemplateDir+"app4.yaml", story.PodYAML("app4", name+":1.0.0-rev1"))
	n.WriteFile(story.ConfigFile, "interval: 0\n")
	s := story.Cycle(t, n, 0)
	require.Equal(t, mirror.Host, sourceAt(t, s, name).Host)
	before := story.Look(t, n, story.GrainFile)

	wishes := map[*node.Registry]*wish{
		seconds: hour(seconds, http.StatusTooManyRequests, false), date: hour(date, http.StatusTooManyRequests, true),
		busy: hour(busy, http.StatusServiceUnavailable, false), mirror: hour(mirror, http.StatusTooManyRequests, false),
	}
	upstream.Forget()
	daemon := story.StartDaemonWith(t, n)
	n.Registry.Forget()
	s = story.Check(t, n)
	assert.Equal(t, status.StateStale, s.State, s.Reason)
	for r, w := range wishes {
		assert.Len(t, r.Requests(), 1, "the one that was refused")
		if r == mirror {
			continue
		}
		source := sourceAt(t, s, r.Ref("demo/app"))
		assert.Contains(t, source.Error, "upstream "+r.Host+": ")
		assert.Contains(t, source.Error, strconv.Itoa(w.status))
		require.NotNil(t, source.RetryAt)
		assert.False(t, source.RetryAt.Before(w.told(t).Truncate(time.Second)), "%s before %s", source.RetryAt, w.told(t))
	}
	assert.Positive(t, n.Registry.Requests().Count(http.MethodHead, node.Manifest), "who said nothing is asked")
	source := sourceAt(t, s, name)
	assert.Equal(t, upstream.Host, source.Host)
	assert.Zero(t, source.Failures)
	assert.Nil(t, source.RetryAt)
	before.Unchanged(t, n, story.GrainFile)

	assert.Equal(t, 0, daemon.Stop().Code)
	story.StartDaemonWith(t, n)
	s = story.Check(t, n)
	for r := range wishes {
		assert.Greater(t, len(r.Requests()), 1, "a person's request asks it")
		if r != mirror {
			assert.Nil(t, sourceAt(t, s, r.Ref("demo/app")).RetryAt, "it answered")
		}
	}
	assert.Equal(t, mirror.Host, sourceAt(t, s, name).Host)
}
