// SPDX-License-Identifier: Apache-2.0

package images

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	containerdimages "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentnode "github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// stored returns all content and snapshots in containerd's store.
func (r *imagesRig) stored() (all []string) {
	r.t.Helper()
	require.NoError(r.t, r.client.ContentStore().Walk(r.t.Context(), func(i content.Info) error {
		all = append(all, i.Digest.String())
		return nil
	}))
	return append(all, r.snapshots("overlayfs", snapshots.KindCommitted)...)
}

// settled returns what is stored after garbage collection.
func (r *imagesRig) settled() []string {
	r.t.Helper()
	r.collect()
	return r.stored()
}

// stagedRecords returns the records that staging made for a release, as the store reports them.
func (r *imagesRig) stagedRecords(release release.Release) []agentnode.HeldImage {
	r.t.Helper()
	held, err := r.store.Held(r.t.Context())
	require.NoError(r.t, err)
	return slices.DeleteFunc(held, func(h agentnode.HeldImage) bool {
		return !h.Staged || h.Repository != release.Repository || h.Digest != release.Digest
	})
}

// named returns all records of a release, whoever made them, without pins.
func (r *imagesRig) named(release release.Release) []agentnode.HeldImage {
	r.t.Helper()
	held, err := r.store.Held(r.t.Context())
	require.NoError(r.t, err)
	config := r.pin(release).Config.String()
	return slices.DeleteFunc(held, func(h agentnode.HeldImage) bool {
		return h.Pin || h.Digest != release.Digest && h.Name != config
	})
}

// unlisted waits until CRI, which learns of it by an event, no longer lists a name.
func (r *imagesRig) unlisted(name string) {
	r.t.Helper()
	node.Eventually(r.t, "cri forgets "+name, story.Ready, func() error {
		answer, err := r.cri.Images.ImageStatus(r.t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
		if err == nil && answer.GetImage() != nil {
			return assert.AnError
		}
		return err
	})
	assert.NotContains(r.t, r.cri.Tags(), name)
}

func testPruneFrees(t *testing.T, r *imagesRig) {
	require.NoError(t, r.store.Pins(t.Context(), nil)) // remove the pins of earlier tests
	layers := r.layers(3)
	kept := r.publish("prune/kept", "4.0.0-rev1-build1.1", node.Image{Layers: layers[:2]})
	gone := r.publish("prune/gone", "4.0.0-rev1-build1.1", node.Image{Layers: []node.Layer{layers[0], layers[2]}})
	r.stage(kept)
	without := r.settled()
	r.stage(gone)
	long := gone.Repository + ":" + gone.Long
	r.listed(long)
	with := r.settled()
	assert.Len(t, with, len(without)+4, "manifest, config, a layer and its snapshot")

	old := r.stagedRecords(gone)
	require.Len(t, old, 1)
	assert.Equal(t, long, old[0].Name)
	require.NoError(t, r.store.Prune(t.Context(), old))
	assert.ElementsMatch(t, with, r.settled(), "the pin holds it")
	require.NoError(t, r.store.Prune(t.Context(), old), "again")

	assert.Empty(t, r.stage(gone))
	require.NoError(t, r.store.Pins(t.Context(), []release.Pin{{Repository: kept.Repository, Digest: kept.Digest}}))
	require.NoError(t, r.store.Prune(t.Context(), r.stagedRecords(gone)))
	assert.ElementsMatch(t, without, r.stored(), "at once")
	r.unlisted(long)
	r.assertContent(kept)
	assert.Equal(t, r.pin(kept).Config, r.listed(kept.Repository+":"+kept.Long))
	requests := r.stage(gone)
	assert.Equal(t, 1, requests.Count(http.MethodGet, node.Manifest), "it comes anew")
	assert.Equal(t, 2, requests.Count(http.MethodGet, node.Blob), "its config and its own layer")
}

// testPrunePulled has kubelet start a release by its floating tag, so that CRI has its own records.
func testPrunePulled(t *testing.T, r *imagesRig) {
	without := r.settled()
	release := r.publish("prunepulled/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.stage(release)
	_, err := r.cri.Pull(release.Repository + ":" + release.Tag)
	require.NoError(t, err)
	require.Len(t, r.stagedRecords(release), 1, "the pull of another name takes nothing from us")
	id := r.pin(release).Config
	names := []string{
		release.Repository + ":" + release.Tag, release.Repository + ":" + release.Long,
		release.Repository + "@" + release.Digest.String(), id.String(),
	}
	var all []agentnode.HeldImage
	node.Eventually(t, "CRI's records", story.Ready, func() error {
		if all = r.named(release); len(all) < len(names) {
			return assert.AnError
		}
		return nil
	})
	var found []string
	for _, h := range all {
		found = append(found, h.Name)
	}
	assert.ElementsMatch(t, names, found)

	// CRI pulls the name that staging made: the record now belongs to CRI.
	_, err = r.cri.Pull(release.Repository + ":" + release.Long)
	require.NoError(t, err)
	assert.Empty(t, r.stagedRecords(release))
	r.stage(release)
	assert.Empty(t, r.stagedRecords(release), "to find it there does not make it ours")

	require.NoError(t, r.store.Pins(t.Context(), nil))
	require.NoError(t, r.store.Prune(t.Context(), all))
	for _, name := range names {
		r.unlisted(name)
	}
	r.assertFreed(release, id)
	for _, s := range r.stored() {
		assert.Contains(t, without, s)
	}
}

func (r *imagesRig) assertFreed(release release.Release, config digest.Digest) {
	r.t.Helper()
	stored := r.stored()
	assert.NotContains(r.t, stored, release.Digest.String())
	assert.NotContains(r.t, stored, config.String())
}

func testPruneLeaves(t *testing.T, r *imagesRig) {
	old := r.publish("pruneleaves/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.stage(old)
	seen := r.stagedRecords(old)
	require.Len(t, seen, 1)
	target, err := r.client.ImageService().Get(t.Context(), seen[0].Name)
	require.NoError(t, err)
	mine := containerdimages.Image{Name: old.Repository + ":mine", Target: target.Target}
	_, err = r.client.ImageService().Create(t.Context(), mine)
	require.NoError(t, err)
	// CRI has made what it makes of a new record.
	r.listed(mine.Name)
	next := r.publish("pruneleaves/velum", "4.0.0-rev1-build1.1", node.Image{}) // the long tag moved
	r.stage(next)

	require.NoError(t, r.store.Prune(t.Context(), seen))
	assert.Equal(t, next.Digest, r.records(next.Repository)[next.Repository+":"+next.Long], "it names another release now")
	require.NoError(t, r.store.Pins(t.Context(), nil))
	require.NoError(t, r.store.Prune(t.Context(), append(r.stagedRecords(old), r.stagedRecords(next)...)))
	assert.NotContains(t, r.records(next.Repository), next.Repository+":"+next.Long)
	assert.Contains(t, r.stored(), old.Digest.String(), "somebody else has a name for it")
	assert.Equal(t, old.Digest, r.records(old.Repository)[mine.Name])
	image, err := r.client.GetImage(t.Context(), mine.Name)
	require.NoError(t, err)
	unpacked, err := image.IsUnpacked(t.Context(), "overlayfs")
	require.NoError(t, err)
	assert.True(t, unpacked)
	require.NoError(t, r.client.ImageService().Delete(t.Context(), mine.Name))
}

// testLeasesTidied simulates killed agents: leases that hold content.
func testLeasesTidied(t *testing.T, r *imagesRig) {
	staging := r.publish("tidy/staging", "4.0.0-rev1-build1.1", node.Image{})
	wanted, unwanted := r.leave("tidy/velum", "wanted"), r.leave("tidy/velum", "unwanted")
	reached, let := r.hold()
	ended := make(chan error, 1)
	go func() { ended <- r.store.Stage(t.Context(), staging, agentnode.StageOptions{}) }()
	<-reached
	require.Len(t, r.leases(), 3)
	require.NoError(t, r.store.Pins(t.Context(), []release.Pin{{Repository: r.Registry.Ref("tidy/velum"), Digest: wanted}}))
	left := map[string]bool{}
	for _, lease := range r.leases() {
		left[lease.Labels["org.opensuse.image-update-agent/stage"]] = true
	}
	assert.Equal(t, map[string]bool{
		r.Registry.Ref("tidy/velum@" + wanted.String()): true, staging.Repository + "@" + staging.Digest.String(): true,
	}, left)
	assert.NotContains(t, r.settled(), unwanted.String())
	assert.Contains(t, r.stored(), wanted.String(), "the bytes that the next staging goes on from")
	let()
	require.NoError(t, <-ended)
	r.assertContent(staging)

	require.NoError(t, r.store.Pins(t.Context(), nil))
	assert.Empty(t, r.leases())
	assert.NotContains(t, r.settled(), wanted.String())
}

// leave makes a lease of ours with a blob, and returns the digest of the lease's release: the blob's own.
func (r *imagesRig) leave(repository, text string) digest.Digest {
	r.t.Helper()
	desc := ocispec.Descriptor{Digest: digest.FromString(text), Size: int64(len(text))}
	lease, err := r.client.LeasesService().Create(r.t.Context(), leases.WithRandomID(), leases.WithExpiration(time.Hour),
		leases.WithLabel("org.opensuse.image-update-agent/stage", r.Registry.Ref(repository+"@"+desc.Digest.String())))
	require.NoError(r.t, err)
	ctx := leases.WithLease(r.t.Context(), lease.ID)
	require.NoError(r.t, content.WriteBlob(ctx, r.client.ContentStore(), text, strings.NewReader(text), desc))
	return desc.Digest
}
