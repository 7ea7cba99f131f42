// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/registry/layout"
)

// What is on a stick is staged and offered, and applied only when the registry that
// kubelet asks has answered.
func TestNothingIsAppliedByItselfFromALayout(t *testing.T) {
	t.Parallel()
	const index = `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",` +
		`"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2,` +
		`"annotations":{"org.opencontainers.image.ref.name":"registry.suse.com/caasp/v4/velum:4.0.0"}}]}`
	dir := t.TempDir()
	for name, text := range map[string]string{
		"etc/image-update-agent/config.yaml": "apply:\n  mode: auto\n",
		"stick/oci-layout":                   `{"imageLayoutVersion":"1.0.0"}`,
		"stick/index.json":                   index,
	} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	a := &app{root: dir}
	s, err := a.settings()
	require.NoError(t, err)
	stick, err := layout.Open(filepath.Join(dir, "stick"), layout.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for from, auto := range map[*layout.Layout]bool{nil: true, stick: false} {
		w, err := a.wire(t.Context(), s, slog.New(slog.DiscardHandler), from)
		require.NoError(t, err)
		assert.Equal(t, auto, w.agent.Policy.Auto)
		w.close()
	}
}
