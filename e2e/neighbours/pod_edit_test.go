// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/manifests"
)

// TestKubeletRunsAnEditedPodManifest checks that a pod manifest in which the agent edited tags and pull policies gives
// kubelet the same pod with these changes, and no others.
func TestKubeletRunsAnEditedPodManifest(t *testing.T) {
	t.Parallel()
	k := startKubelet(t, "edited-pod-files")
	rounds, r := inputs(t, 2000)
	f, dir, edited := podFile{r}, t.TempDir(), 0
	read := func(name, text string) kubeletSays {
		own := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(own, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(own, "pod.yaml"), []byte(text), 0o600))
		return k.ask(map[string]any{"pods": own}, own)
	}
	for n := range rounds {
		text := f.text()
		file, err := manifests.Parse([]byte(text))
		if err != nil {
			continue
		}
		policy := oneOf(r, "", "IfNotPresent", "Always")
		rendered, err := file.Render(manifests.Overrides{
			Tag: func(string, manifests.Image) (string, bool) { return "9.9-edited", true }, PullPolicy: policy,
		}, nil)
		if err != nil || len(rendered.Changes) == 0 {
			continue
		}
		before := read(fmt.Sprint(n, "a"), text).Pods
		after := read(fmt.Sprint(n, "b"), string(rendered.Data)).Pods
		if len(before) == 0 {
			continue // kubelet rejects another field
		}
		edited++
		about := fmt.Sprintf("%q\n%q", text, rendered.Data)
		if !assert.Len(t, after, 1, about) || !assert.Len(t, after[0].Containers, len(before[0].Containers), about) {
			continue
		}
		for i, was := range before[0].Containers {
			is := after[0].Containers[i]
			if is.Image != was.Image {
				reference := manifests.SplitReference(was.Image)
				reference.Tag, reference.Digest = "9.9-edited", ""
				assert.Equal(t, reference.String(), is.Image, about)
			}
			// The agent reports images that it does not edit, for example with a policy of null.
			isReported := slices.ContainsFunc(rendered.Untouched, func(i manifests.Image) bool { return i.Container == was.Name })
			if policy != "" && !isReported && strings.HasSuffix(is.Image, ":9.9-edited") {
				assert.Equal(t, policy, is.Policy, about)
			}
			was.Image, is.Image, was.Policy, is.Policy = "", "", "", ""
			assert.Equal(t, was, is, about)
		}
		before[0].Containers, after[0].Containers = nil, nil
		assert.Equal(t, before, after, about)
	}
	t.Logf("%d edited", edited)
	assert.Greater(t, edited, rounds/10)
}
