// SPDX-License-Identifier: Apache-2.0

package registrytest

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// A guard that records nothing fails.
func TestGuard(t *testing.T) {
	t.Parallel()
	leaks := []struct {
		title string
		say   func(*Guard)
		want  string
	}{
		{"nothing", func(*Guard) {}, ""},
		{"log", func(g *Guard) { g.Log.Info("x", "y", Secret) }, "was said"},
		{"debug log", func(g *Guard) { g.Log.Debug("x", "y", SecretToken) }, "was said"},
		{"error", func(g *Guard) {
			g.Answered(nil, &release.SourceError{Err: fmt.Errorf("at %s", EncodedAuth("u", Secret))})
		}, "was said"},
		{"answer", func(g *Guard) { g.Answered(release.Resolved{Host: Secret}, nil) }, "was said"},
		{"header", func(g *Guard) {
			g.learnRequest(&http.Request{URL: &url.URL{}, Header: http.Header{"X-Key": {"value of key"}}})
			g.Hear("a value+of+key there")
		}, "header X-Key"},
		{"short", func(g *Guard) { g.Learn("here", "short") }, "too short"},
	}
	for _, l := range leaks {
		g := NewGuard(&silent{TB: t}, nil)
		l.say(g)
		if l.want == "" {
			assert.Empty(t, g.problems())
			continue
		}
		require.Len(t, g.problems(), 1, l.title)
		assert.Contains(t, g.problems()[0], l.want)
	}
}

// silent is a test that ends without its guard.
type silent struct{ testing.TB }

func (*silent) Cleanup(func()) {}
