// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/manifests"
)

// BenchmarkRender1000 renders the seven templates of testdata in turn until it has 1,000 pod manifests, as one
// operation. The goal is one second.
func BenchmarkRender1000(b *testing.B) {
	files, err := filepath.Glob("testdata/templates/*.yaml")
	require.NoError(b, err)
	var templates [][]byte
	size := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(b, err)
		templates = append(templates, data)
		size += len(data)
	}
	o := manifests.Overrides{
		Tag:        always("4.0.0-rev1"),
		PullPolicy: manifests.PullAlways,
		Rewrites:   []manifests.Rewrite{{From: "sles12", To: "registry.suse.com/caasp/v4"}},
	}
	b.SetBytes(int64(size * 1000 / len(templates)))
	b.ReportAllocs()
	for b.Loop() {
		for i := range 1000 {
			if _, err := renderBytes(templates[i%len(templates)], o); err != nil {
				b.Fatal(err)
			}
		}
	}
}
