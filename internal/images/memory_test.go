// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/internal/ocimanifest"
)

// BenchmarkMemory measures the peak of containerd's client code for the worst document at each limit, and for one above
// it, which took 560 MB before entries were counted.
func BenchmarkMemory(b *testing.B) {
	named := func(n int) string { // members of an object with different names
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, `,"%x":"x"`, i)
		}
		return all.String()[1:]
	}
	const index, manifest, config = ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageConfig
	// A descriptor that names a platform is larger.
	platform := `{"platform":{"os":"linux","architecture":"amd64"}}`
	for title, c := range map[string]struct{ kind, body string }{
		"Index":           {index, `{"manifests":[` + repeat(platform, ocimanifest.MaxEntries) + `],"annotations":{` + named(ocimanifest.MaxMembers-4*ocimanifest.MaxEntries-10) + `}}`},
		"Manifest":        {manifest, `{"layers":` + list(ocimanifest.MaxLayers) + `,"annotations":{` + named(ocimanifest.MaxMembers-2*ocimanifest.MaxLayers-10) + `}}`},
		"ConfigOfHistory": {config, `{"history":` + list(ocimanifest.MaxEntries) + `}`},
		"ConfigOfLabels":  {config, `{"config":{"Labels":{` + named(ocimanifest.MaxMembers-10) + `}}}`},
		"ListRefused":     {index, `{"manifests":` + list(maxDocument/3-10) + `}`},
	} {
		b.Run(title, func(b *testing.B) {
			disk, err := local.NewStore(b.TempDir())
			require.NoError(b, err)
			body := c.body + strings.Repeat(" ", maxDocument-len(c.body))
			desc := ocispec.Descriptor{MediaType: c.kind, Digest: digest.FromString(body), Size: int64(len(body))}
			require.NoError(b, content.WriteBlob(b.Context(), disk, title, strings.NewReader(body), desc))
			store := &documents{disk}
			agenttest.PeakMemory(b, func() {
				var err error
				switch c.kind {
				case config:
					_, err = images.RootFS(b.Context(), store, desc)
				case index:
					_, err = images.Manifest(b.Context(), store, desc, platforms.Default())
				default:
					_, err = images.Children(b.Context(), store, desc)
				}
				if title == "ListRefused" {
					require.ErrorIs(b, err, ocimanifest.ErrTooMany)
				} else {
					require.NotErrorIs(b, err, ocimanifest.ErrTooMany) // the entries of the index do not exist
				}
			})
		})
	}
}

func repeat(entry string, n int) string { return strings.TrimSuffix(strings.Repeat(entry+",", n), ",") }
