// SPDX-License-Identifier: Apache-2.0

package salt

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// Salt is not available as a package here: ../story/testdata/salt.py evaluates its files by its rules, and the tests
// run the resulting commands. There is no master and no minion.
const (
	saltOrch = story.SaltDir + "image-update/orch.sls"

	offers = "image_update_available: true\nimage_update_state: \"staged\"\n"
	broken = "image_update_available: true\nimage_update_state: \"failed\"\n"
	quiet  = "image_update_available: false\nimage_update_state: \"current\"\n"
)

// Salt 2016.11 ignores or rejects arguments that it does not know. These are the arguments that it knows for the used
// states.
var saltArguments = map[string][]string{
	"cmd.run":                      {"name", "env", "shell", "stateful", "timeout"},
	"module.run":                   {"name", "order"},
	"service.running":              {"enable"},
	"salt.runner":                  {"name", "tag", "data", "require"},
	"salt.state":                   {"tgt", "tgt_type", "sls", "pillar", "expect_minions", "queue", "failhard", "require"},
	"test.configurable_test_state": {"changes", "result", "comment"},
	"test.succeed_without_changes": {"name"},
	"test.fail_without_changes":    {"name"},
}

func requireOldSaltKnows(t *testing.T, states []story.SaltState) {
	t.Helper()
	for _, s := range states {
		require.Contains(t, saltArguments, s.Function)
		for argument := range s.Args {
			require.Contains(t, saltArguments[s.Function], argument, s.ID)
		}
	}
}

func TestSaltAppliesAndRefreshes(t *testing.T) {
	t.Parallel()
	states := story.SaltStates(t, story.SaltApply, nil, nil)
	requireOldSaltKnows(t, states)
	require.Len(t, states, 2)
	apply, refresh := states[0], states[1]
	assert.Equal(t, "cmd.run", apply.Function)
	assert.Equal(t, `eval "$IMAGE_UPDATE" # image-update-agent apply`, apply.Args["name"], "Salt shows it as the command")
	assert.Contains(t, apply.Script(), "$(image-update-agent apply --output json 2>&1)\n")
	assert.Equal(t, true, apply.Args["stateful"])
	assert.Equal(t, "/bin/sh", apply.Args["shell"], "minions take the login shell of who started them")
	assert.InDelta(t, 3600, apply.Args["timeout"], 0)
	assert.Equal(t, story.SaltState{
		ID: "refresh grains", Function: "module.run",
		Args: map[string]any{"name": "saltutil.refresh_grains", "order": "last"},
	}, refresh, "after a failure, too: so nothing is required")

	lint := exec.CommandContext(t.Context(), "shellcheck", "--shell=sh", "-")
	lint.Stdin = strings.NewReader(story.SaltCommand(t, nil))
	found, err := lint.CombinedOutput()
	require.NoError(t, err, "%s", found)

	expect := map[string]any{"r/etcd": "sha256:1", "r/velum": []string{"sha256:2", "sha256:3'; reboot"}}
	assert.Contains(t, story.SaltCommand(t, map[string]any{"image_update": map[string]any{"expect": expect}}),
		"$(image-update-agent apply --output json --expect 'r/etcd=sha256:1' --expect 'r/velum=sha256:2' "+
			"--expect 'r/velum=sha256:3; reboot' 2>&1)\n", "only these digests, and nothing that a shell understands")

	config, err := os.ReadFile(story.SaltDir + "minion.d/image-update.conf")
	require.NoError(t, err)
	assert.Contains(t, string(config), "\ngrains_refresh_every: 10\n")
}

func TestSaltOrchestration(t *testing.T) {
	t.Parallel()
	stale := func(loaded string) *string { return &loaded }
	fleets := map[string]struct {
		nodes  map[string]story.SaltNode
		pillar map[string]any
		want   []string
	}{
		"admin first, then by name": {
			nodes: map[string]story.SaltNode{"b": {File: offers}, "a": {File: offers}, "z": {File: "roles:\n- admin\n" + offers}},
			want:  []string{"z", "a", "b"},
		},
		"only who offers": {
			nodes: map[string]story.SaltNode{
				"admin": {File: "roles: [admin]\n" + quiet}, "a": {File: quiet}, "b": {File: offers}, "c": {File: ""},
			},
			want: []string{"b"},
		},
		"what stands in the files, not what was read last": {
			nodes: map[string]story.SaltNode{
				"new": {File: offers, Loaded: stale(quiet)}, "old": {File: quiet, Loaded: stale(offers)},
			},
			want: []string{"new"},
		},
		"who is away is left alone": {
			nodes: map[string]story.SaltNode{"a": {File: offers, Away: true}, "b": {File: offers}, "c": {File: broken, Away: true}},
			want:  []string{"b"},
		},
		"another order": {
			nodes: map[string]story.SaltNode{
				"m2": {File: "roles: [kube-master]\n" + offers}, "m1": {File: "roles: [kube-master]\n" + offers},
				"w-1": {File: offers}, "other": {File: offers}, "admin": {File: "roles: [admin]\n" + quiet},
			},
			pillar: map[string]any{"image_update": map[string]any{"order": []string{"w-*", "G@roles:kube-master or G@roles:admin"}}},
			want:   []string{"w-1", "m1", "m2"},
		},
		"one that has failed, when asked for": {
			nodes:  map[string]story.SaltNode{"a": {File: broken}, "b": {File: offers}},
			pillar: map[string]any{"image_update": map[string]any{"past_failed": true}},
			want:   []string{"a", "b"},
		},
		"names that YAML would read otherwise": {
			nodes: map[string]story.SaltNode{"no": {File: offers}, "1.0": {File: offers}, `x: "y" #`: {File: offers}},
			want:  []string{"1.0", "no", `x: "y" #`},
		},
	}
	for name, f := range fleets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states := story.SaltStates(t, saltOrch, f.nodes, f.pillar)
			requireOldSaltKnows(t, states)
			assert.Equal(t, oneByOne(f.want), states)
		})
	}
	assert.FileExists(t, story.SaltDir+strings.ReplaceAll("image-update.apply", ".", "/")+".sls")
}

// oneByOne returns the states that update these nodes: each waits for the success of the one before it.
func oneByOne(ids []string) []story.SaltState {
	var states []story.SaltState
	for i, id := range ids {
		args := map[string]any{
			"tgt": []any{id}, "tgt_type": "list", "sls": "image-update.apply",
			"pillar":         map[string]any{"image_update": map[string]any{"past_held": false, "lock_wait": 600.0, "expect": map[string]any{}}},
			"expect_minions": true, "queue": true, "failhard": true,
		}
		event := map[string]any{
			"name": "event.send", "tag": "image-update/node",
			"data": map[string]any{"node": id, "number": float64(i + 1), "of": float64(len(ids))},
		}
		if i > 0 {
			before := []any{map[string]any{"salt": states[len(states)-1].ID}}
			args["require"], event["require"] = before, before
		}
		states = append(states,
			story.SaltState{ID: "image update: " + id + " is next", Function: "salt.runner", Args: event},
			story.SaltState{ID: "image update of " + id, Function: "salt.state", Args: args})
	}
	return states
}

func TestSaltOrchestrationOfNone(t *testing.T) {
	t.Parallel()
	fleets := map[string]struct {
		nodes   map[string]story.SaltNode
		result  bool
		comment string
	}{
		"none there":  {nil, true, "no node offers an update"},
		"none offers": {map[string]story.SaltNode{"a": {File: quiet}}, true, "no node offers an update"},
		"some failed": {
			map[string]story.SaltNode{"b": {File: broken}, "a": {File: offers}, "admin": {File: "roles: [admin]\n" + broken}},
			false, "failed before: admin, b",
		},
	}
	for name, f := range fleets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states := story.SaltStates(t, saltOrch, f.nodes, nil)
			requireOldSaltKnows(t, states)
			require.Len(t, states, 1)
			assert.Equal(t, f.result, states[0].Args["result"])
			assert.Equal(t, f.comment, states[0].Args["comment"])

			// In a test run, test.configurable_test_state succeeds whatever its result is.
			states = story.SaltTest(t, saltOrch, f.nodes)
			requireOldSaltKnows(t, states)
			require.Len(t, states, 1)
			if !f.result {
				assert.Equal(t, "test.fail_without_changes", states[0].Function)
				assert.Equal(t, f.comment, states[0].Args["name"])
			}
		})
	}
}

func TestSaltReadsTheExitCodes(t *testing.T) {
	t.Parallel()
	ends := []struct {
		code   int
		result story.SaltResult
	}{
		{0, story.SaltResult{Result: true, Comment: "done (0): said", Changed: true}},
		{1, story.SaltResult{Result: false, Comment: "failed (1): said", Changed: true}},
		{2, story.SaltResult{Result: false, Comment: "invalid arguments or configuration (2): said", Changed: false}},
		{3, story.SaltResult{Result: true, Comment: "nothing to do (3): said", Changed: false}},
		{4, story.SaltResult{Result: false, Comment: "held (4): said", Changed: false}},
		{137, story.SaltResult{Result: false, Comment: "ended by something else (137): said", Changed: false}},
	}
	command := story.SaltCommand(t, nil)
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		for _, end := range ends {
			t.Run(fmt.Sprint(shell, end.code), func(t *testing.T) {
				t.Parallel()
				agent := story.Program(t, fmt.Sprintf("[ \"$*\" = \"apply --output json\" ] || exit 99\necho said\nexit %d\n", end.code))
				result, code, _ := story.SaltRun(t, shell, command, agent)
				assert.Equal(t, end.result, result)
				assert.Equal(t, end.result.Result, code == 0)
			})
		}
	}
	result, code, _ := story.SaltRun(t, "/bin/sh", command, t.TempDir())
	assert.Equal(t, 127, code)
	assert.False(t, result.Result)
	assert.Contains(t, result.Comment, "is image-update-agent installed here? (127): ")
}

// TestSaltGoesPastHeld checks that, on request, the orchestration skips a held node and passes this request on to the
// node.
func TestSaltGoesPastHeld(t *testing.T) {
	t.Parallel()
	pillar := map[string]any{"image_update": map[string]any{"past_held": true}}
	states := story.SaltStates(t, saltOrch, map[string]story.SaltNode{"a": {File: offers}}, pillar)
	requireOldSaltKnows(t, states)
	require.Len(t, states, 2)
	given, _ := states[1].Args["pillar"].(map[string]any)
	assert.Equal(t, map[string]any{"image_update": map[string]any{"past_held": true, "lock_wait": 600.0, "expect": map[string]any{}}}, given)

	result, code, _ := story.SaltRun(t, "/bin/sh", story.SaltCommand(t, given), story.Program(t, "echo said; exit 4\n"))
	assert.Equal(t, story.SaltResult{Result: true, Comment: "held (4): said"}, result)
	assert.Zero(t, code)
	_, code, _ = story.SaltRun(t, "/bin/sh", story.SaltCommand(t, given), story.Program(t, "exit 1\n"))
	assert.Equal(t, 1, code)
}

// TestSaltWaitsForTheLock checks that a node that waits for the fleet lock is not a failure, and that the comment
// names the holder. Other holds are failures.
func TestSaltWaitsForTheLock(t *testing.T) {
	t.Parallel()
	pillar := map[string]any{"image_update": map[string]any{"lock_wait": 0}}
	states := story.SaltStates(t, saltOrch, map[string]story.SaltNode{"a": {File: offers}}, pillar)
	given, _ := states[1].Args["pillar"].(map[string]any)
	command := story.SaltCommand(t, given)
	held := func(hold string) string {
		said, err := json.MarshalIndent([]status.Outcome{
			{PodManifest: "etcd.yaml", Change: "rebuild", Result: status.ResultHeld, Reason: `held: lock: holder "b"`, Hold: hold},
			{PodManifest: "velum.yaml", Result: status.ResultNothing},
		}, "", "  ")
		require.NoError(t, err)
		return "[ \"$*\" = \"apply --output json\" ] || exit 99\n[ -e \"${0%/*}/free\" ] && exit 0\n" +
			"cat <<'END'\n" + string(said) + "\nEND\nexit 4\n"
	}
	soon := story.Program(t, held(status.HoldLock))
	agenttest.WriteProgram(t, filepath.Join(soon, "sleep"), "#!/bin/sh\n: >\"${0%/*}/free\"\n")
	result, _, _ := story.SaltRun(t, "/bin/sh", story.SaltCommand(t, nil), soon)
	assert.Equal(t, story.SaltResult{Result: true, Changed: true, Comment: "done (0): "}, result, "it was waited for")
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		result, code, _ := story.SaltRun(t, shell, command, story.Program(t, held(status.HoldLock)))
		assert.Equal(t, story.SaltResult{Result: true, Comment: "waits for the fleet lock (4): etcd.yaml rebuild held held: lock: holder 'b';velum.yaml nothing"}, result)
		assert.Zero(t, code)
		result, code, _ = story.SaltRun(t, shell, command, story.Program(t, held(status.HoldQuorum)))
		assert.Equal(t, story.SaltResult{Comment: "held (4): etcd.yaml rebuild held held: lock: holder 'b';velum.yaml nothing"}, result)
		assert.Equal(t, 4, code)
	}
}

// TestSaltReadsAnyReason checks that any reason from the agent reaches Salt as one line of plain words, and that the
// comment shows it unchanged.
func TestSaltReadsAnyReason(t *testing.T) {
	t.Parallel()
	said := "velum.yaml  rebuild  held  a \"quoted\" 'word', $(x) `y` C:\\z\r\nnext\tkey=value %s\u00e9"
	agent := story.Program(t, "cat <<'END'\n"+said+"\nEND\nprintf 'error: of stderr' >&2\nexit 4\n")
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		result, _, stdout := story.SaltRun(t, shell, story.SaltCommand(t, nil), agent)
		assert.Equal(t, story.SaltResult{Comment: "held (4): velum.yaml  rebuild  held  a 'quoted' 'word', $(x) `y` C:/z;nextkey:value %s;error: of stderr"}, result)
		assert.True(t, strings.HasPrefix(stdout, said+"\nerror: of stderr\n\n"), "%q", stdout)
	}
}
