// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// A reader that was written from the format's page reads what image-catalog publishes: few images, and so many that they
// are in shards.
func TestReaderInAnotherLanguage(t *testing.T) {
	t.Parallel()
	p := newPublishers(t, node.DockerRegistry)
	p.registry.Push("one", node.Image{}, "4.0.0-rev1-build1.1")
	p.registry.Push("one", node.Image{Answer: "two"}, "4.0.0-rev1-build1.2")
	p.does(t, "init", "stage", "--key", p.key)
	read := func(images ...string) []string {
		t.Helper()
		args := append([]string{"../../docs/dev/read-catalog.py", "http://" + p.registry.Host, "catalog", "stage"}, images...)
		out, err := exec.CommandContext(t.Context(), "python3", args...).CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.Fields(string(out))
	}
	assert.Empty(t, read())
	p.does(t, "add", "stage", p.registry.Ref("one:4.0.0-rev1-build1.1"), p.registry.Ref("one:4.0.0-rev1-build1.2"), "--key", p.key)
	p.does(t, "withdraw", "stage", "one:4.0.0-rev1-build1.2", "--reason", "bsc#1", "--key", p.key)
	listed := func() (list []string) {
		for line := range strings.FieldsSeq(p.does(t, "images", "stage")) {
			if !strings.Contains(line, "/catalog:") {
				list = append(list, line)
			}
		}
		return list
	}
	require.Len(t, listed(), 1)
	assert.Equal(t, listed(), read())

	const images = 300
	var all []string
	for n := range images {
		name := fmt.Sprintf("many/image%03d", n)
		p.registry.Push(name, node.Image{}, "1.0-rev1-build1.1")
		all = append(all, p.registry.Ref(name+":1.0-rev1-build1.1"))
	}
	p.does(t, append([]string{"add", "stage", "--key", p.key}, all...)...)
	want := listed()
	require.Len(t, want, images+1)
	assert.Equal(t, want, read())
	assert.Equal(t, want[7:8], read(p.registry.Ref("many/image007")))
}
