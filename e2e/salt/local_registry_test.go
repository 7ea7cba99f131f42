// SPDX-License-Identifier: Apache-2.0

package salt

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

const saltLocalRegistry = story.SaltDir + "image-update/local-registry.sls"

func localRegistryPillar(registries map[string]any) map[string]any {
	return map[string]any{"image_update": map[string]any{"local_registry": registries}}
}

// TestSaltLocalRegistry checks that the state starts the socket first, and runs for each registry the verb for its
// position.
func TestSaltLocalRegistry(t *testing.T) {
	t.Parallel()
	states := story.SaltStates(t, saltLocalRegistry, nil, localRegistryPillar(map[string]any{
		"registry.suse.com": "fallback", "docker.io": "gate", "ghcr.io": false, "quay.io": "off",
	}))
	requireOldSaltKnows(t, states)
	require.Len(t, states, 5)
	assert.Equal(t, story.SaltState{
		ID: "image-update-agent-local-registry.socket", Function: "service.running", Args: map[string]any{"enable": true},
	}, states[0])
	for i, want := range []string{
		"enable --gate --write -- 'docker.io'", "disable --write -- 'ghcr.io'", "disable --write -- 'quay.io'",
		"enable --write -- 'registry.suse.com'",
	} {
		command := states[i+1].Script()
		assert.Contains(t, command, "$(image-update-agent local-registry "+want+" 2>&1)\n")
		assert.Equal(t, true, states[i+1].Args["stateful"])
		lint := exec.CommandContext(t.Context(), "shellcheck", "--shell=sh", "-")
		lint.Stdin = strings.NewReader(command)
		found, err := lint.CombinedOutput()
		require.NoError(t, err, "%s", found)
	}
	none := story.SaltStates(t, saltLocalRegistry, nil, nil)
	requireOldSaltKnows(t, none)
	assert.Equal(t, "test.succeed_without_changes", none[0].Function)
	off := story.SaltStates(t, saltLocalRegistry, nil, localRegistryPillar(map[string]any{"quay.io": "off"}))
	require.Len(t, off, 1, "without a registry the socket is not needed")
}

func TestSaltReadsTheExitCodesOfTheLocalRegistry(t *testing.T) {
	t.Parallel()
	states := story.SaltStates(t, saltLocalRegistry, nil, localRegistryPillar(map[string]any{"registry.suse.com": "fallback"}))
	command := states[1].Script()
	for code, want := range map[int]story.SaltResult{
		0: {Result: true, Comment: "done (0): said", Changed: true}, 1: {Result: false, Comment: "failed (1): said", Changed: false}, 3: {Result: true, Comment: "nothing to do (3): said", Changed: false},
		2: {Result: false, Comment: "invalid arguments or configuration (2): said", Changed: false}, 4: {Result: false, Comment: "left as it is (4): said", Changed: false},
	} {
		agent := story.Program(t, fmt.Sprintf("[ \"$*\" = 'local-registry enable --write -- registry.suse.com' ] || exit 99\necho said\nexit %d\n", code))
		result, _, _ := story.SaltRun(t, "/bin/sh", command, agent)
		assert.Equal(t, want, result)
	}
}

// TestSaltLocalRegistryOnANode runs the state's command on a node: it writes the file, reports no change when repeated,
// and restores the file.
func TestSaltLocalRegistryOnANode(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{})
	n.WriteHosts(story.LocalRegistryRegistry, n.Registry)
	before := n.ReadFile(story.LocalRegistryFile)
	agent := story.Program(t, fmt.Sprintf("exec %s --root %s \"$@\"\n", n.AgentProgram(), n.Root))
	run := func(position any) story.SaltResult {
		states := story.SaltStates(t, saltLocalRegistry, nil, localRegistryPillar(map[string]any{story.LocalRegistryRegistry: position}))
		command := states[len(states)-1].Script()
		result, _, _ := story.SaltRun(t, "/bin/sh", command, agent)
		return result
	}
	for _, position := range []any{"fallback", "gate", false} {
		first, second := run(position), run(position)
		assert.True(t, first.Result && first.Changed, first.Comment)
		assert.True(t, second.Result && !second.Changed, second.Comment)
	}
	assert.Equal(t, before, n.ReadFile(story.LocalRegistryFile))
	entries, err := os.ReadDir(filepath.Dir(n.Path(story.LocalRegistryFile)))
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}
