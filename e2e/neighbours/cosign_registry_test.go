// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// cosigns are the compared versions: the part of tools/setup with the version's code.
var cosigns = []string{"cosign2-verifies", "cosign3-verifies"}

// cosignHost is the registry's name in tools/modules/verifies.
const cosignHost = "registry.example"

// cosignRegistry is the Registry of tools/modules/verifies, and a source of signatures for the agent.
type cosignRegistry struct {
	Repository string                           `json:"repository"`
	Tags       map[string]digest.Digest         `json:"tags"`
	Manifests  map[digest.Digest]cosignDocument `json:"manifests"`
	Blobs      map[digest.Digest][]byte         `json:"blobs"`
	Lists      map[digest.Digest][]byte         `json:"referrers"` // nil: no referrers API
}

type cosignDocument struct {
	MediaType string `json:"mediaType"`
	Body      []byte `json:"body"`
}

func (r *cosignRegistry) missing(what string) error {
	return &release.SourceError{Repository: r.Repository, Err: fmt.Errorf("%s: %w", what, release.ErrNotFound)}
}

func (r *cosignRegistry) Manifest(_ context.Context, repository, name string) (string, []byte, error) {
	d, tagged := r.Tags[name]
	if !tagged {
		d = digest.Digest(name)
	}
	m, ok := r.Manifests[d]
	switch {
	case !ok || repository != cosignHost+"/"+r.Repository:
		return "", nil, r.missing(name)
	case digest.FromBytes(m.Body) != d:
		return "", nil, fmt.Errorf("%s is not %s", name, d)
	}
	return m.MediaType, m.Body, nil
}

func (r *cosignRegistry) Blob(_ context.Context, _ string, desc ocispec.Descriptor) ([]byte, error) {
	b, ok := r.Blobs[desc.Digest]
	switch {
	case !ok:
		return nil, r.missing(desc.Digest.String())
	case int64(len(b)) != desc.Size || digest.FromBytes(b) != desc.Digest:
		return nil, fmt.Errorf("blob is not %s of %d bytes", desc.Digest, desc.Size)
	}
	return b, nil
}

func (r *cosignRegistry) Referrers(_ context.Context, _ string, d digest.Digest) ([]ocispec.Descriptor, error) {
	if r.Lists == nil {
		return nil, r.missing("referrers")
	}
	var list ocispec.Index
	if body, ok := r.Lists[d]; ok {
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, err
		}
	}
	return list.Manifests, nil
}

// blob adds a blob.
func (r *cosignRegistry) blob(mediaType string, data []byte) ocispec.Descriptor {
	d := digest.FromBytes(data)
	r.Blobs[d] = data
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

// manifest adds a manifest or an index.
func (r *cosignRegistry) manifest(mediaType string, body []byte) ocispec.Descriptor {
	d := digest.FromBytes(body)
	r.Manifests[d] = cosignDocument{mediaType, body}
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(body))}
}

// cosign answers with cosign's own code (tools/modules/cosign2/verifies, tools/modules/cosign3/verifies).
type cosign struct{ *judge }

func startCosign(t *testing.T, part string) cosign {
	t.Helper()
	return cosign{startJudge(t, strings.TrimSuffix(part, "-verifies"), part, "verifies")}
}

// ways returns the ways in which each key has signed one of the digests.
func (c cosign) ways(t *testing.T, r *cosignRegistry, keys []string, digests ...digest.Digest) []map[string]bool {
	t.Helper()
	all := make([]map[string]bool, len(keys))
	for _, d := range digests {
		var says struct{ Ways [][]string }
		c.ask(map[string]any{"registry": r, "digest": d, "keys": keys}, &says, input{})
		require.Len(t, says.Ways, len(keys))
		for n, found := range says.Ways {
			if all[n] == nil {
				all[n] = map[string]bool{}
			}
			for _, way := range found {
				all[n][way] = true
			}
		}
	}
	return all
}
