// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// The status of 5,000 containers, each with a rebuild that waits, is published and read whole.
func TestStatusOfALargeNode(t *testing.T) {
	t.Parallel()
	s := status.Status{SchemaVersion: status.StatusSchemaVersion}
	for n := range 5000 {
		image, file := fmt.Sprintf("registry.suse.com/caasp/v4/image%d", n), fmt.Sprintf("pod%d.yaml", n/4)
		is := &status.Named{Tag: "4.0.0-rev1-build1.1", Digest: digest.FromString("1")}
		s.Images = append(s.Images, status.ImageStatus{
			Image: image, Container: fmt.Sprintf("container%d", n), PodManifest: file, Follow: "4.0.0-rev1",
			Running: is, Offered: is, LastKnownGood: is, Previous: is, Change: "rebuild", Staged: true,
			Host: "registry.suse.com", Created: &s.Written,
		})
		s.Sources = append(s.Sources, status.SourceStatus{Repository: image, Host: "registry.suse.com", LastSuccess: &s.Written})
		s.Updates = append(s.Updates, status.AnnouncedUpdate{Image: image, Change: "rebuild", From: is.Tag, To: is.Tag, Digest: is.Digest})
		if n%4 == 0 {
			s.PodManifests = append(s.PodManifests, status.PodStatus{
				PodManifest: file, Change: "rebuild", Edits: []status.Edit{{Container: "container", Field: status.EditImage, From: is.Tag, To: is.Tag}},
			})
		}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	require.NoError(t, err)
	assert.Less(t, len(text), status.MaxStatus)
	assert.Empty(t, status.DropFrom(&s, "status", status.MaxStatus, nil))
	got, err := NewClient(serve(t, true, &daemon{status: s})).Status(t.Context())
	require.NoError(t, err)
	assert.Len(t, got.Images, 5000)
	assert.Len(t, properties(s)["Images"].Value(), maxListed)
	assert.Contains(t, properties(s)["Cut"].Value(), "Images", "the bus says what it cuts")
}
