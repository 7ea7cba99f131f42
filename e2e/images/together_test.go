// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"net/http"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	agentnode "github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

// unpackKey matches the key that containerd's client gives to a snapshot that it unpacks, in an event of containerd.
var unpackKey = regexp.MustCompile(`extract-\S+ (sha256:[0-9a-f]{64})`)

// unpacking returns the chain ID of each layer when its unpacking starts.
func (r *imagesRig) unpacking() <-chan string {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	r.t.Cleanup(cancel)
	events, _ := r.client.Subscribe(ctx, `topic=="/snapshot/prepare"`)
	chains := make(chan string, 100)
	go func() {
		for {
			select {
			case e := <-events:
				if key := unpackKey.FindSubmatch(e.Event.GetValue()); key != nil {
					chains <- string(key[1])
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return chains
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
	chains := r.unpacking()
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
	unpacked := map[string]bool{}
	for len(unpacked) < 6 {
		chain := <-chains
		assert.False(t, unpacked[chain], "%s was unpacked more than once", chain)
		unpacked[chain] = true
	}
	assert.Empty(t, chains)
}
