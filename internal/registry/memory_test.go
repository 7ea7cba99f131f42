// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/internal/ocimanifest"
)

// pairs returns members of an object with different names.
func pairs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%x":"x"`, i)
	}
	return b.String()[1:]
}

// filled returns a document of the maximum size.
func filled(b *testing.B, head string, members int, tail string) []byte {
	b.Helper()
	body := []byte(head + pairs(members) + tail)
	require.LessOrEqual(b, len(body), maxManifest)
	return append(body, bytes.Repeat([]byte{' '}, maxManifest-len(body))...)
}

// entry returns a descriptor with its digest, and annotations.
func entry(n int, more string) string {
	return fmt.Sprintf(`{"mediaType":"`+ocispec.MediaTypeImageManifest+`","digest":"%s","size":1%s}`, digest.FromString(fmt.Sprint(n)), more)
}

func entries(n int, more string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("," + entry(i, more))
	}
	return b.String()[1:]
}

// BenchmarkMemory measures the peak for the worst document at each limit: the maximum size, filled with the most
// expensive content, in the maximum number.
func BenchmarkMemory(b *testing.B) {
	const manifest, index = ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex
	config := fmt.Sprintf(`"config":{"mediaType":"%s","digest":"%s","size":1}`, ocispec.MediaTypeImageConfig, digest.FromString("none"))
	for title, c := range map[string]struct {
		kind, head, tail string
		members          int
	}{
		"ManifestOfAnnotations": {manifest, `{"schemaVersion":2,` + config + `,"annotations":{`, `}}`, ocimanifest.MaxMembers - 10},
		"ManifestOfKeys":        {manifest, `{"schemaVersion":2,` + config + `,`, `}`, ocimanifest.MaxMembers - 10},
		"ManifestOfLayers": {
			manifest, `{"schemaVersion":2,` + config + `,"layers":[` + entries(ocimanifest.MaxLayers-1, "") + `,{"annotations":{`, `}}]}`,
			ocimanifest.MaxMembers - 10 - 4*ocimanifest.MaxLayers,
		},
		"Index":       {index, `{"schemaVersion":2,"manifests":[` + entries(ocimanifest.MaxEntries, "") + `],"annotations":{`, `}}`, 90_000},
		"ListRefused": {index, `{"schemaVersion":2,"manifests":[` + strings.Repeat("{},", maxManifest/4), `]}`, 0},
	} {
		b.Run(title, func(b *testing.B) {
			f := newFake(b)
			var body []byte
			if c.members == 0 {
				body = []byte(strings.TrimSuffix(c.head, ",") + c.tail)
			} else {
				body = filled(b, c.head, c.members, c.tail)
			}
			desc := f.set(c.kind, body)
			r := New(Options{CertsDirs: []string{certsD(b, f.host(), plainHTTP(f.host()))}, Platform: node})
			b.Cleanup(r.Close)
			agenttest.PeakMemory(b, func() {
				_, err := r.Describe(b.Context(), f.repository(), desc.Digest)
				require.Error(b, err) // its content does not exist
			})
		})
	}
	for title, part := range map[string]string{"ConfigOfLabels": `"config":{"Labels":{%s}}`, "ConfigOfHistory": `"history":[{%s}]`} {
		b.Run(title, func(b *testing.B) {
			f := newFake(b)
			head, tail, _ := strings.Cut(part, "%s")
			desc := f.set("application/octet-stream", filled(b, `{"os":"linux","architecture":"amd64",`+head, ocimanifest.MaxMembers-10, tail+"}"))
			desc.MediaType = ocispec.MediaTypeImageConfig
			image := f.manifest(b, desc, nil)
			r := New(Options{CertsDirs: []string{certsD(b, f.host(), plainHTTP(f.host()))}, Platform: node})
			b.Cleanup(r.Close)
			agenttest.PeakMemory(b, func() {
				_, err := r.Describe(b.Context(), f.repository(), image.Digest)
				require.NoError(b, err)
			})
		})
	}
	b.Run("Tags", func(b *testing.B) {
		f := newFake(b)
		var pages [][]byte
		for page := range maxTags / 5000 {
			var names strings.Builder
			for n := range 5000 {
				fmt.Fprintf(&names, `,"%0128d"`, page*5000+n)
			}
			pages = append(pages, []byte(`{"tags":[`+names.String()[1:]+`]}`))
		}
		f.answer(func(w http.ResponseWriter, req *http.Request) {
			tagPages(len(pages), func(page int) string { _, _ = io.Copy(w, bytes.NewReader(pages[page])); return "" })(w, req)
		})
		r := New(Options{CertsDirs: []string{certsD(b, f.host(), plainHTTP(f.host()))}, Platform: node})
		b.Cleanup(r.Close)
		agenttest.PeakMemory(b, func() {
			list, err := r.Tags(b.Context(), f.repository())
			require.NoError(b, err)
			require.Len(b, list, maxTags)
		})
	})
}
