// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
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

// trickle serves the big layers of a repository, up to the middle at full speed and then a byte per half minute.
type trickle struct {
	n          *node.Node
	repository string

	lock    sync.Mutex
	fast    bool
	ranges  []string      // of the requests, in order
	reached chan struct{} // closed when the slow part begins
}

func startTrickle(n *node.Node, repository string) *trickle {
	s := &trickle{n: n, repository: repository, reached: make(chan struct{})}
	n.Registry.Intercept(s.serve)
	return s
}

func (s *trickle) serve(w http.ResponseWriter, q *http.Request) bool {
	_, id, ok := strings.Cut(q.URL.Path, "/v2/"+s.repository+"/blobs/sha256:")
	if !ok || q.Method != http.MethodGet {
		return false
	}
	data, err := os.ReadFile(filepath.Join(s.n.Registry.Storage(), "docker/registry/v2/blobs/sha256", id[:2], id, "data"))
	if err != nil || len(data) < story.BigLayer {
		return false
	}
	s.lock.Lock()
	s.ranges = append(s.ranges, q.Header.Get("Range"))
	fast := s.fast
	s.lock.Unlock()
	if !fast {
		http.ServeContent(flushed{w}, q, "", time.Time{}, &slowReader{Reader: bytes.NewReader(data), trickle: s, q: q})
	}
	return !fast
}

// hurry makes the layers come at full speed.
func (s *trickle) hurry() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.fast = true
}

func (s *trickle) asked() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]string(nil), s.ranges...)
}

// flushed sends each write at once.
type flushed struct{ http.ResponseWriter }

func (w flushed) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.ResponseWriter.(http.Flusher).Flush()
	return n, err
}

// slowReader reads at the speed of a slow host.
type slowReader struct {
	*bytes.Reader
	trickle *trickle
	q       *http.Request
}

func (r *slowReader) Read(p []byte) (int, error) {
	at := int(r.Size()) - r.Len()
	if at < story.BrokenAt {
		return r.Reader.Read(p[:min(len(p), story.BrokenAt-at)])
	}
	r.trickle.lock.Lock()
	if r.trickle.reached != nil {
		close(r.trickle.reached)
		r.trickle.reached = nil
	}
	r.trickle.lock.Unlock()
	select {
	case <-r.q.Context().Done():
		return 0, r.q.Context().Err()
	case <-time.After(30 * time.Second):
		return r.Reader.Read(p[:1])
	}
}

// While a layer comes at a byte per half minute, a person rolls another pod back, holds an image and reloads the
// configuration. The pull continues where it was, and the check request is answered.
func TestRequestPrecedesASlowPull(t *testing.T) {
	t.Parallel()
	n, daemon, port := story.Running(t, "")
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	story.Check(t, n)
	story.Apply(t, n, 0, "velum")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	n.Registry.Publish("demo/slow", "4.0.0-rev1-build1.1", node.Image{Layers: []node.Layer{{Seed: 7, Size: story.BigLayer}}})
	n.WriteFile(story.TemplateDir+"slow.yaml", story.PodYAML("slow", n.Registry.Ref("demo/slow:4.0.0-rev1")))
	slow := startTrickle(n, "demo/slow")
	reached := slow.reached
	checking := n.StartAgent("check", "--output", "json")
	<-reached
	store := n.Containerd.Client().ContentStore()
	node.Eventually(t, "containerd has all that came", story.Ready, func() error {
		parts, err := store.ListStatuses(t.Context())
		if err == nil && (len(parts) != 1 || parts[0].Offset != story.BrokenAt) {
			err = fmt.Errorf("%+v", parts)
		}
		return err
	})

	began := time.Now()
	before := n.ReadFile(story.VelumYAML)
	begun := make(chan time.Duration, 1)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			// At first it is set aside.
			if text, err := os.ReadFile(n.Path(story.VelumYAML)); t.Context().Err() != nil || err != nil || string(text) != before {
				begun <- time.Since(began)
				return
			}
		}
	}()
	r := n.Agent("rollback", "velum")
	require.Equal(t, 0, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	t.Logf("rollback under a slow pull: begun after %s, done after %s", <-begun, time.Since(began))
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	s := story.St(t, n)
	require.NotNil(t, s.Interrupted, "the pull is not done")
	assert.Equal(t, "staging", s.Interrupted.Work)
	for _, source := range s.Sources {
		assert.Zero(t, source.Failures, source.Error)
	}
	for _, args := range [][]string{{"hold", "velum"}, {"resume", "velum"}, {"reload"}} {
		began = time.Now()
		r = n.Agent(args...)
		require.Equal(t, 0, r.Code, "%s\n%s", r.Stdout, r.Stderr)
		t.Logf("%s under a slow pull: done after %s", args[0], time.Since(began))
	}
	slow.hurry()
	require.Equal(t, 0, n.Agent("hold", "velum").Code) // restarts the pull
	assert.Equal(t, 0, checking.Wait(story.Ready).Code)
	s = story.St(t, n)
	assert.Nil(t, s.Interrupted)
	assert.NotEqual(t, status.StateFailed, s.State, s.Reason)
	assert.True(t, story.ImageOf(t, s, "slow.yaml").Staged)
	ranges := slow.asked()
	assert.Empty(t, ranges[0])
	assert.True(t, strings.HasPrefix(ranges[len(ranges)-1], "bytes=3145"), "%v", ranges)
	assert.Equal(t, 0, daemon.Stop().Code)
}
