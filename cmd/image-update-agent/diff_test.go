// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/config"
)

func TestDiffShowsWhatAnApplyChanges(t *testing.T) {
	t.Parallel()
	disk, rendered := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	const before = "image: r/velum:1.0.0-rev1\nimagePullPolicy: IfNotPresent\n"
	write(disk, "velum.yaml", before)
	write(rendered, "velum.yaml", "image: r/velum:1.0.0-rev2\nimagePullPolicy: Always\n")
	write(rendered, "new.yaml", "image: r/new:1.0.0-rev1\n")
	write(disk, "etcd.yaml", before)
	status := agent.Status{
		Images: []agent.ImageStatus{{Image: "r/velum", PodManifest: "velum.yaml"}, {Image: "r/new", PodManifest: "new.yaml"}},
		PodManifests: []agent.PodStatus{
			{PodManifest: "etcd.yaml"},
			{PodManifest: "new.yaml", Waiting: true},
			{PodManifest: "velum.yaml", Waiting: true},
			{PodManifest: "unstaged.yaml", Waiting: true},
		},
	}
	shown := func(names ...string) string {
		var out bytes.Buffer
		a := newApp(streams{out: &out, err: &out})
		s := settings{Settings: config.Settings{PodManifests: disk, Rendered: rendered}}
		require.NoError(t, a.printWaiting(s, status, names))
		return out.String()
	}
	velum := shown("velum")
	for _, line := range []string{
		"-image: r/velum:1.0.0-rev1\n", "+image: r/velum:1.0.0-rev2\n",
		"-imagePullPolicy: IfNotPresent\n", "+imagePullPolicy: Always\n",
	} {
		assert.Contains(t, velum, line)
	}
	assert.NotContains(t, velum, "r/new")
	assert.Contains(t, shown(), "+image: r/new:1.0.0-rev1\n", "a new file is all new")
	assert.NotContains(t, shown(), "etcd")
}
