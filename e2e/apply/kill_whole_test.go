// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// target is a release that was staged despite the kills.
type target struct {
	long, digest string
	layers       []node.Layer
}

// whole asserts that the release is complete, pinned, listed and correct, and that its pull left nothing else.
func (r *killRig) whole(p target) {
	r.t.Helper()
	assert.ElementsMatch(r.t, append([]string{p.digest}, r.kept...), story.Pins(r.t, r.Node), "pins")
	name := r.Registry.Ref(killRepository + ":" + p.long)
	node.Eventually(r.t, "cri lists "+name, story.Ready, func() error {
		answer, err := r.cri.Images.ImageStatus(r.t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
		if err == nil && answer.GetImage() == nil {
			err = errors.New("no such image")
		}
		return err
	})
	record, err := r.client.ImageService().Get(r.t.Context(), name)
	require.NoError(r.t, err)
	assert.Equal(r.t, p.digest, record.Target.Digest.String())
	r.correctContent(p, record)
	r.nothingLeft()
}

// correctContent reads back the fetched and the unpacked content.
func (r *killRig) correctContent(p target, record images.Image) {
	r.t.Helper()
	store := r.client.ContentStore()
	manifest, err := images.Manifest(r.t.Context(), store, record.Target, platforms.Default())
	require.NoError(r.t, err)
	var size int64
	for _, blob := range append(manifest.Layers, manifest.Config, record.Target) {
		data, err := content.ReadBlob(r.t.Context(), store, blob)
		require.NoError(r.t, err)
		assert.Equal(r.t, blob.Digest, digest.FromBytes(data))
		size += blob.Size
	}
	size -= manifest.Layers[0].Size // of the program, which all images share
	fetched := r.Registry.Requests().Bytes(node.Blob)
	r.twice = fetched - size
	r.tally.twice = max(r.tally.twice, r.twice)

	config, err := images.Config(r.t.Context(), store, record.Target, platforms.Default())
	require.NoError(r.t, err)
	layers, err := images.RootFS(r.t.Context(), store, config)
	require.NoError(r.t, err)
	dirs := r.unpacked(identity.ChainID(layers).String())
	for _, layer := range p.layers {
		want, err := io.ReadAll(layer.Content())
		require.NoError(r.t, err)
		var found [][]byte
		for _, dir := range dirs {
			if data, err := os.ReadFile(filepath.Join(dir, "data", fmt.Sprint(layer.Seed))); err == nil {
				found = append(found, data)
			}
		}
		require.Len(r.t, found, 1, "data/%d", layer.Seed)
		assert.True(r.t, bytes.Equal(want, found[0]), "data/%d", layer.Seed)
	}
}

// unpacked returns the directories of a snapshot's layers.
func (r *killRig) unpacked(name string) []string {
	r.t.Helper()
	service := r.client.SnapshotService("overlayfs")
	mounts, err := service.View(r.t.Context(), "view of "+name, name)
	require.NoError(r.t, err)
	if err := service.Remove(r.t.Context(), "view of "+name); !errdefs.IsNotFound(err) { // the collector may have been faster
		require.NoError(r.t, err)
	}
	for _, option := range mounts[0].Options {
		if dirs, ok := strings.CutPrefix(option, "lowerdir="); ok {
			return strings.Split(dirs, ":")
		}
	}
	require.FailNow(r.t, "no directories", "%+v", mounts)
	return nil
}

// nothingLeft waits for containerd's collector, and reports leftovers once.
func (r *killRig) nothingLeft() {
	r.t.Helper()
	defer func() {
		if unfinished, err := r.unfinished(); err == nil && r.t.Failed() {
			r.before = slices.Collect(maps.Keys(unfinished))
		}
	}()
	node.Eventually(r.t, "nothing left", story.Ready, r.leftovers)
}

// leftovers returns an error for unfinished objects that were not there at the beginning. containerd's collector
// removes the objects of a lease only after the lease.
func (r *killRig) leftovers() error {
	unfinished, err := r.unfinished()
	for _, name := range r.before {
		delete(unfinished, name)
	}
	if err == nil && len(unfinished) > 0 {
		err = fmt.Errorf("%q", slices.Sorted(maps.Keys(unfinished)))
	}
	return err
}

// stageLease is the label of the agent's leases, with the release.
const stageLease = "org.opensuse.image-update-agent/stage"

// unfinished returns leases, ingests, and snapshots that are not committed. A running container has such a snapshot,
// and its sandbox also a lease.
func (r *killRig) unfinished() (map[string]bool, error) {
	found := map[string]bool{}
	leases, err := r.client.LeasesService().List(r.t.Context())
	for _, lease := range leases {
		found["lease "+lease.ID+" "+lease.Labels[stageLease]] = true
	}
	ingests, err2 := r.client.ContentStore().ListStatuses(r.t.Context())
	for _, ingest := range ingests {
		found["ingest "+ingest.Ref] = true
	}
	err3 := r.client.SnapshotService("overlayfs").Walk(r.t.Context(), func(_ context.Context, i snapshots.Info) error {
		if i.Kind != snapshots.KindCommitted {
			found["snapshot "+i.Name] = true
		}
		return nil
	})
	return found, errors.Join(err, err2, err3)
}
