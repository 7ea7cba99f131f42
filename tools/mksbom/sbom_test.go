// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDocumentOf(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{
		GoVersion: "go1.26.6", Path: "example.com/a/cmd/program", Main: debug.Module{Path: "example.com/a", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "example.com/b", Version: "v2.0.0+incompatible"},
			{Path: "example.com/c", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/d", Version: "v1.0.1"}},
		},
	}
	got, err := json.Marshal(documentOf(info, "1.2.0+git5.f3daea1"))
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": {"component": {"type": "application", "name": "program", "version": "1.2.0+git5.f3daea1",
			"bom-ref": "pkg:golang/example.com/a@1.2.0%2Bgit5.f3daea1", "purl": "pkg:golang/example.com/a@1.2.0%2Bgit5.f3daea1"}},
		"components": [
			{"type": "library", "name": "stdlib", "version": "1.26.6",
				"bom-ref": "pkg:golang/stdlib@1.26.6", "purl": "pkg:golang/stdlib@1.26.6"},
			{"type": "library", "name": "example.com/b", "version": "v2.0.0+incompatible",
				"bom-ref": "pkg:golang/example.com/b@v2.0.0%2Bincompatible", "purl": "pkg:golang/example.com/b@v2.0.0%2Bincompatible"},
			{"type": "library", "name": "example.com/d", "version": "v1.0.1",
				"bom-ref": "pkg:golang/example.com/d@v1.0.1", "purl": "pkg:golang/example.com/d@v1.0.1"}]}`, string(got))
}
