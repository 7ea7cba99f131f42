// SPDX-License-Identifier: Apache-2.0

package e2e

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
)

const saltLocalhost = saltDir + "image-update/localhost.sls"

func ownHostPillar(registries map[string]any) map[string]any {
	return map[string]any{"image_update": map[string]any{"own_host": registries}}
}

// The state has the socket first, and for each registry the verb that its position wants.
func TestSaltOwnHost(t *testing.T) {
	t.Parallel()
	states := saltStates(t, saltLocalhost, nil, ownHostPillar(map[string]any{
		"registry.suse.com": "fallback", "docker.io": "gate", "ghcr.io": false, "quay.io": "off",
	}))
	requireOldSaltKnows(t, states)
	require.Len(t, states, 5)
	assert.Equal(t, saltState{
		ID: "image-update-agent-localhost.socket", Function: "service.running", Args: map[string]any{"enable": true},
	}, states[0])
	for i, want := range []string{
		"enable --gate --write -- 'docker.io'", "disable --write -- 'ghcr.io'", "disable --write -- 'quay.io'",
		"enable --write -- 'registry.suse.com'",
	} {
		command, _ := states[i+1].Args["name"].(string)
		assert.Contains(t, command, "$(image-update-agent localhost "+want+" 2>&1)\n")
		assert.Equal(t, true, states[i+1].Args["stateful"])
		lint := exec.CommandContext(t.Context(), "shellcheck", "--shell=sh", "-")
		lint.Stdin = strings.NewReader(command)
		found, err := lint.CombinedOutput()
		require.NoError(t, err, "%s", found)
	}
	none := saltStates(t, saltLocalhost, nil, nil)
	requireOldSaltKnows(t, none)
	assert.Equal(t, "test.succeed_without_changes", none[0].Function)
	off := saltStates(t, saltLocalhost, nil, ownHostPillar(map[string]any{"quay.io": "off"}))
	require.Len(t, off, 1, "without a registry the socket is not needed")
}

func TestSaltReadsTheExitCodesOfTheOwnHost(t *testing.T) {
	t.Parallel()
	states := saltStates(t, saltLocalhost, nil, ownHostPillar(map[string]any{"registry.suse.com": "fallback"}))
	command, _ := states[1].Args["name"].(string)
	for code, want := range map[int]saltResult{
		0: {true, "done (0): said", true}, 1: {false, "failed (1): said", false}, 3: {true, "nothing to do (3): said", false},
		2: {false, "not understood: arguments or configuration (2): said", false}, 4: {false, "left as it is (4): said", false},
	} {
		agent := program(t, fmt.Sprintf("[ \"$*\" = 'localhost enable --write -- registry.suse.com' ] || exit 99\necho said\nexit %d\n", code))
		result, _, _ := saltRun(t, "/bin/sh", command, agent)
		assert.Equal(t, want, result)
	}
}

// The very command on a node: it writes the file, says that nothing is to be done, and restores the file.
func TestSaltOwnHostOnANode(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{})
	n.WriteHosts(ownHostRegistry, n.Registry)
	before := n.ReadFile(ownHostFile)
	agent := program(t, fmt.Sprintf("exec %s --root %s \"$@\"\n", n.AgentProgram(), n.Root))
	run := func(position any) saltResult {
		states := saltStates(t, saltLocalhost, nil, ownHostPillar(map[string]any{ownHostRegistry: position}))
		command, _ := states[len(states)-1].Args["name"].(string)
		result, _, _ := saltRun(t, "/bin/sh", command, agent)
		return result
	}
	for _, position := range []any{"fallback", "gate", false} {
		first, second := run(position), run(position)
		assert.True(t, first.Result && first.Changed, first.Comment)
		assert.True(t, second.Result && !second.Changed, second.Comment)
	}
	assert.Equal(t, before, n.ReadFile(ownHostFile))
	entries, err := os.ReadDir(filepath.Dir(n.Path(ownHostFile)))
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}
