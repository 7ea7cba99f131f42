// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/source"
)

// longLists adds old tags to each list, and knows whether one of them is still in
// memory when the next list is asked for.
type longLists struct {
	source.Source

	lists int
	old   []weak.Pointer[byte]
	kept  int // lists that were there when another one was asked for
}

func (l *longLists) Tags(ctx context.Context, repository string) ([]string, error) {
	l.observe()
	l.lists++
	names, err := l.Source.Tags(ctx, repository)
	for n := range 1000 {
		names = append(names, fmt.Sprintf("3.0.%d-rev1-build1.1", n))
	}
	l.old = append(l.old, weak.Make(unsafe.StringData(names[len(names)-500])))
	return names, err
}

func (l *longLists) observe() {
	runtime.GC()
	for _, old := range l.old {
		if old.Value() != nil {
			l.kept++
		}
	}
}

// A hundred thousand tags of each repository at once are hundreds of megabytes.
func TestTagListsAreDroppedAfterUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const repositories = 4
	var containers []string
	for n := range repositories {
		repository := fmt.Sprintf("registry.suse.com/caasp/v4/r%d", n)
		w.Registry.Release(repository, "4.0.0", 1, "1.1")
		w.Registry.Release(repository, "4.0.0", 2, "1.1")
		containers = append(containers, fmt.Sprintf("c%d=%s:4.0.0-rev1", n, repository), fmt.Sprintf("d%d=%s:4.0.0", n, repository))
	}
	w.Node.PutTemplate("many.yaml", podYAML("many", containers...))
	w.restart()
	lists := &longLists{Source: w.agent.Source}
	w.agent.Source = lists

	s := w.check()

	assert.Contains(t, w.Node.PodManifest("many.yaml"), "r3:4.0.0-rev2", s.Reason)
	lists.observe()
	require.Equal(t, repositories, lists.lists)
	assert.Zero(t, lists.kept)
}

// What is kept of a list after use answers its questions again, when a tag has moved
// between two readings: also on a line above which there are many others.
func TestTrimmedListKeepsTheIntermediateTag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.ConfirmAfter = 30 * time.Second
		for n := range 20 {
			w.Registry.Release(velum, "5.0.0", n+1, "1.1")
		}
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
		w.restart()
		w.meanwhile(func(n int) {
			if n == 1 {
				w.Registry.Release(velum, "4.0.0", 1, "1.2")
			}
		})
		s := w.check()
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), velum+":4.0.0-rev1\n", s.Reason)
	})
}
