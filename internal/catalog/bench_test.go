// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// BenchmarkOwnPages reads the pages of a node with 20 images.
func BenchmarkOwnPages(b *testing.B) {
	var pages [][]byte
	var refs []catalog.PageRef
	for image := range 20 {
		p := catalog.Page{Image: fmt.Sprintf("registry.suse.com/caasp/v4/app%d", image)}
		for i := range catalog.Kept {
			p.Releases = append(p.Releases, catalog.Release{
				Tag: fmt.Sprintf("4.0.0-rev1-build1.%d", catalog.Kept-i), Digest: digest.FromString(fmt.Sprint(image, i)),
				Created: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC).Add(-time.Duration(i) * time.Hour),
			})
		}
		data, err := p.Encode()
		require.NoError(b, err)
		pages = append(pages, data)
		refs = append(refs, catalog.PageRef{Image: p.Image, Digest: digest.FromBytes(data), Size: int64(len(data))})
	}
	for b.Loop() {
		for n, data := range pages {
			_, err := catalog.DecodePage(data, refs[n])
			require.NoError(b, err)
		}
	}
}
