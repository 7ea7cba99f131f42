// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Any program on a node can send requests to the local registry's program, and a container's start waits for its own
// start. So it is linked of the standard library, without net/http, and of the table's format.
func TestLocalRegistryIsLinkedOfLittle(t *testing.T) {
	t.Parallel()
	const module = "github.com/kubic-project/image-update-agent/"
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/image-update-agent-local-registry")
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	var others []string
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSuffix(name, "\n")
		if first, _, _ := strings.Cut(name, "/"); strings.Contains(first, ".") {
			others = append(others, name)
		}
		assert.NotContains(t, []string{"net/http", "crypto/tls", "regexp", "os/exec"}, name)
	}
	assert.Equal(t, []string{
		module + "agent/localregistry/table", module + "internal/registry/registryhost/answer",
		module + "cmd/image-update-agent-local-registry",
	}, others)
}
