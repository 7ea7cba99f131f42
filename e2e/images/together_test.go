// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentnode "github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// unpackKey matches the key that containerd's client gives to a snapshot that it unpacks, in an event of containerd.
var unpackKey = regexp.MustCompile(`extract-\S+ (sha256:[0-9a-f]{64})`)

// unpacking watches containerd from now on; unpacked returns the chain ID of each layer whose unpacking has begun since.
func (r *imagesRig) unpacking() (unpacked func() []string) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	r.t.Cleanup(cancel)
	keys := make(chan string, 100)
	events, failed := r.client.Subscribe(ctx, `topic=="/snapshot/prepare"`)
	go func() {
		for {
			select {
			case e := <-events:
				keys <- string(e.Event.GetValue())
			case <-ctx.Done():
				return
			}
		}
	}()
	service := r.client.SnapshotService("overlayfs")
	prepare := func(key string) error {
		_, err := service.Prepare(ctx, key, "")
		if err == nil {
			err = service.Remove(ctx, key)
		}
		if errdefs.IsNotFound(err) { // the collector has been faster
			err = nil
		}
		return err
	}
	// containerd sends no event of the time before it has the subscription.
	node.Eventually(r.t, "events of containerd", story.Ready, func() error {
		if err := prepare("before all"); err != nil {
			return err
		}
		select {
		case <-keys:
			return nil
		case err := <-failed:
			return err
		default:
			return errors.New("none")
		}
	})
	return func() (all []string) {
		const end = "after all"
		require.NoError(r.t, prepare(end))
		for {
			select {
			case key := <-keys:
				if strings.Contains(key, end) {
					return all
				}
				if chain := unpackKey.FindStringSubmatch(key); chain != nil {
					all = append(all, chain[1])
				}
			case err := <-failed:
				require.NoError(r.t, err)
			}
		}
	}
}

// testStageTogether stages images at the same time and checks that shared layers are fetched and unpacked once. The
// registry sends no layer until all pulls have requested theirs.
func testStageTogether(t *testing.T, r *imagesRig) {
	layers := r.layers(6)
	var releases []release.Release
	for i, name := range []string{"velum", "mariadb", "openldap", "salt"} {
		releases = append(releases, r.publish("together/"+name, "1.0-rev1-build1.1", node.Image{
			Layers: []node.Layer{layers[0], layers[1], layers[i+2]},
		}))
	}
	reached, let := r.hold()
	r.Registry.Forget()
	unpacked := r.unpacking()
	var group sync.WaitGroup
	for _, release := range releases {
		group.Go(func() { assert.NoError(t, r.store.Stage(t.Context(), release, agentnode.StageOptions{})) })
	}
	<-reached
	let()
	group.Wait()
	fetched := map[string]int{}
	for _, request := range r.Registry.Requests() {
		if request.Method == http.MethodGet && request.Kind == node.Blob {
			fetched[request.Reference]++
		}
	}
	assert.Len(t, fetched, 4+6, "configs and layers")
	for blob, count := range fetched {
		assert.Equal(t, 1, count, "%s was fetched more than once", blob)
	}
	for _, release := range releases {
		r.assertContent(release)
	}
	chains := unpacked()
	slices.Sort(chains)
	assert.Len(t, chains, 6)
	assert.Equal(t, slices.Compact(slices.Clone(chains)), chains, "a layer was unpacked more than once")
}
