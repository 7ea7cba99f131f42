// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Salt cannot be had as a package here: its files are read by its rules (testdata/salt.py), and the command that they
// run is run. A master and a minion are not.
const (
	saltDir   = "../packaging/salt/"
	saltApply = saltDir + "image-update/apply.sls"
	saltOrch  = saltDir + "image-update/orch.sls"

	offers = "image_update_available: true\nimage_update_state: \"staged\"\n"
	broken = "image_update_available: true\nimage_update_state: \"failed\"\n"
	quiet  = "image_update_available: false\nimage_update_state: \"current\"\n"
)

// saltNode is a node as a master sees it.
type saltNode struct {
	File   string  `json:"file"`             // /etc/salt/grains
	Loaded *string `json:"loaded,omitempty"` // what the minion read last, where that differs
	Away   bool    `json:"away,omitempty"`
}

type saltState struct {
	ID       string         `json:"id"`
	Function string         `json:"function"`
	Args     map[string]any `json:"args"`
}

// saltPython asks testdata/salt.py.
func saltPython(t *testing.T, request map[string]any, answer any) {
	t.Helper()
	input, err := json.Marshal(request)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "testdata/salt.py")
	cmd.Stdin = bytes.NewReader(input)
	var problems strings.Builder
	cmd.Stderr = &problems
	output, err := cmd.Output()
	require.NoError(t, err, "this needs Debian's python3-jinja2 and python3-yaml: %s", problems.String())
	require.NoError(t, json.Unmarshal(output, answer))
}

// saltStates renders an SLS file, and checks that all that its states require is there.
func saltStates(t *testing.T, file string, fleet map[string]saltNode, pillar map[string]any) []saltState {
	t.Helper()
	var answer struct{ States []saltState }
	saltPython(t, map[string]any{"render": file, "fleet": fleet, "pillar": pillar}, &answer)
	require.NotEmpty(t, answer.States, "Salt calls an empty file a failure")
	for _, s := range answer.States {
		required, _ := s.Args["require"].([]any)
		for _, r := range required {
			for module, id := range r.(map[string]any) {
				assert.True(t, slices.ContainsFunc(answer.States, func(s saltState) bool {
					return s.ID == id && strings.HasPrefix(s.Function, module+".")
				}), "%s requires %s: %v", s.ID, module, id)
			}
		}
	}
	return answer.States
}

// What Salt 2016.11 does not know, it ignores or refuses: these it knows, of the states that are used.
var saltArguments = map[string][]string{
	"cmd.run":                      {"name", "shell", "stateful", "timeout"},
	"module.run":                   {"name", "order"},
	"service.running":              {"enable"},
	"salt.runner":                  {"name", "tag", "data", "require"},
	"salt.state":                   {"tgt", "tgt_type", "sls", "pillar", "expect_minions", "queue", "failhard", "require"},
	"test.fail_without_changes":    {"name"},
	"test.succeed_without_changes": {"name"},
}

func requireOldSaltKnows(t *testing.T, states []saltState) {
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
	states := saltStates(t, saltApply, nil, nil)
	requireOldSaltKnows(t, states)
	require.Len(t, states, 2)
	apply, refresh := states[0], states[1]
	assert.Equal(t, "cmd.run", apply.Function)
	assert.Contains(t, apply.Args["name"], "$(image-update-agent apply 2>&1)\n")
	assert.Equal(t, true, apply.Args["stateful"])
	assert.Equal(t, "/bin/sh", apply.Args["shell"], "minions take the login shell of who started them")
	assert.InDelta(t, 3600, apply.Args["timeout"], 0)
	assert.Equal(t, saltState{
		ID: "refresh grains", Function: "module.run",
		Args: map[string]any{"name": "saltutil.refresh_grains", "order": "last"},
	}, refresh, "after a failure, too: so nothing is required")

	lint := exec.CommandContext(t.Context(), "shellcheck", "--shell=sh", "-")
	lint.Stdin = strings.NewReader(saltCommand(t, nil))
	found, err := lint.CombinedOutput()
	require.NoError(t, err, "%s", found)

	expect := map[string]any{"r/etcd": "sha256:1", "r/velum": []string{"sha256:2", "sha256:3'; reboot"}}
	assert.Contains(t, saltCommand(t, map[string]any{"image_update": map[string]any{"expect": expect}}),
		"$(image-update-agent apply --expect 'r/etcd=sha256:1' --expect 'r/velum=sha256:2' "+
			"--expect 'r/velum=sha256:3; reboot' 2>&1)\n", "only these digests, and nothing that a shell understands")

	config, err := os.ReadFile(saltDir + "minion.d/image-update.conf")
	require.NoError(t, err)
	assert.Contains(t, string(config), "\ngrains_refresh_every: 10\n")
}

func TestSaltOrchestration(t *testing.T) {
	t.Parallel()
	stale := func(loaded string) *string { return &loaded }
	fleets := map[string]struct {
		nodes  map[string]saltNode
		pillar map[string]any
		want   []string
	}{
		"admin first, then by name": {
			nodes: map[string]saltNode{"b": {File: offers}, "a": {File: offers}, "z": {File: "roles:\n- admin\n" + offers}},
			want:  []string{"z", "a", "b"},
		},
		"only who offers": {
			nodes: map[string]saltNode{
				"admin": {File: "roles: [admin]\n" + quiet}, "a": {File: quiet}, "b": {File: offers}, "c": {File: ""},
			},
			want: []string{"b"},
		},
		"what stands in the files, not what was read last": {
			nodes: map[string]saltNode{
				"new": {File: offers, Loaded: stale(quiet)}, "old": {File: quiet, Loaded: stale(offers)},
			},
			want: []string{"new"},
		},
		"who is away is left alone": {
			nodes: map[string]saltNode{"a": {File: offers, Away: true}, "b": {File: offers}, "c": {File: broken, Away: true}},
			want:  []string{"b"},
		},
		"another order": {
			nodes: map[string]saltNode{
				"m2": {File: "roles: [kube-master]\n" + offers}, "m1": {File: "roles: [kube-master]\n" + offers},
				"w-1": {File: offers}, "other": {File: offers}, "admin": {File: "roles: [admin]\n" + quiet},
			},
			pillar: map[string]any{"image_update": map[string]any{"order": []string{"w-*", "G@roles:kube-master or G@roles:admin"}}},
			want:   []string{"w-1", "m1", "m2"},
		},
		"one that has failed, when asked for": {
			nodes:  map[string]saltNode{"a": {File: broken}, "b": {File: offers}},
			pillar: map[string]any{"image_update": map[string]any{"past_failed": true}},
			want:   []string{"a", "b"},
		},
		"names that YAML would read otherwise": {
			nodes: map[string]saltNode{"no": {File: offers}, "1.0": {File: offers}, `x: "y" #`: {File: offers}},
			want:  []string{"1.0", "no", `x: "y" #`},
		},
	}
	for name, f := range fleets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states := saltStates(t, saltOrch, f.nodes, f.pillar)
			requireOldSaltKnows(t, states)
			assert.Equal(t, oneByOne(f.want), states)
		})
	}
	assert.FileExists(t, saltDir+strings.ReplaceAll("image-update.apply", ".", "/")+".sls")
}

// oneByOne are the states that bring these nodes up to date: each waits for the one before it to succeed.
func oneByOne(ids []string) []saltState {
	var states []saltState
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
			saltState{ID: "image update: " + id + " is next", Function: "salt.runner", Args: event},
			saltState{ID: "image update of " + id, Function: "salt.state", Args: args})
	}
	return states
}

func TestSaltOrchestrationOfNone(t *testing.T) {
	t.Parallel()
	fleets := map[string]struct {
		nodes    map[string]saltNode
		function string
		name     string
	}{
		"none there":  {nil, "test.succeed_without_changes", "no node offers an update"},
		"none offers": {map[string]saltNode{"a": {File: quiet}}, "test.succeed_without_changes", "no node offers an update"},
		"some failed": {
			map[string]saltNode{"b": {File: broken}, "a": {File: offers}, "admin": {File: "roles: [admin]\n" + broken}},
			"test.fail_without_changes", "failed before: admin, b",
		},
	}
	for name, f := range fleets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states := saltStates(t, saltOrch, f.nodes, nil)
			requireOldSaltKnows(t, states)
			require.Len(t, states, 1)
			assert.Equal(t, f.function, states[0].Function)
			assert.Equal(t, f.name, states[0].Args["name"])
		})
	}
}

// saltResult is a state's result as Salt shows it.
type saltResult struct {
	Result  bool   `json:"result"`
	Comment string `json:"comment"`
	Changed bool   `json:"changed"`
}

// saltCommand is what apply.sls has a minion run.
func saltCommand(t *testing.T, pillar map[string]any) string {
	t.Helper()
	command, _ := saltStates(t, saltApply, nil, pillar)[0].Args["name"].(string)
	return command
}

// saltRun runs a command as a minion does, with image-update-agent from dir alone.
func saltRun(t *testing.T, shell, command, dir string) (result saltResult, code int, stdout string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), shell, "-c", command)
	cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); !exited { //nolint:errorlint // Run wraps nothing
		require.NoError(t, err)
	}
	assert.Empty(t, problems.String(), "all goes to stdout")
	code = cmd.ProcessState.ExitCode()
	saltPython(t, map[string]any{"stateful": out.String(), "retcode": code}, &result)
	return result, code, out.String()
}

// program writes a shell script named image-update-agent into a directory of its own.
func program(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	file := filepath.Join(dir, "image-update-agent")
	syscall.ForkLock.RLock() // or a process that is started meanwhile has it open, and it cannot be run: go.dev/issue/22315
	err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	return dir
}

func TestSaltReadsTheExitCodes(t *testing.T) {
	t.Parallel()
	ends := []struct {
		code   int
		result saltResult
	}{
		{0, saltResult{true, "done (0): said", true}},
		{1, saltResult{false, "failed (1): said", true}},
		{2, saltResult{false, "not understood: arguments or configuration (2): said", false}},
		{3, saltResult{true, "nothing to do (3): said", false}},
		{4, saltResult{false, "held (4): said", false}},
		{137, saltResult{false, "ended by something else (137): said", false}},
	}
	command := saltCommand(t, nil)
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		for _, end := range ends {
			t.Run(fmt.Sprint(shell, end.code), func(t *testing.T) {
				t.Parallel()
				agent := program(t, fmt.Sprintf("[ \"$*\" = apply ] || exit 99\necho said\nexit %d\n", end.code))
				result, code, _ := saltRun(t, shell, command, agent)
				assert.Equal(t, end.result, result)
				assert.Equal(t, end.result.Result, code == 0)
			})
		}
	}
	result, code, _ := saltRun(t, "/bin/sh", command, t.TempDir())
	assert.Equal(t, 127, code)
	assert.False(t, result.Result)
	assert.Contains(t, result.Comment, "is image-update-agent installed here? (127): ")
}

// Told to, the orchestration goes past a node that is held; it then tells the node so.
func TestSaltGoesPastHeld(t *testing.T) {
	t.Parallel()
	pillar := map[string]any{"image_update": map[string]any{"past_held": true}}
	states := saltStates(t, saltOrch, map[string]saltNode{"a": {File: offers}}, pillar)
	requireOldSaltKnows(t, states)
	require.Len(t, states, 2)
	given, _ := states[1].Args["pillar"].(map[string]any)
	assert.Equal(t, map[string]any{"image_update": map[string]any{"past_held": true, "lock_wait": 600.0, "expect": map[string]any{}}}, given)

	result, code, _ := saltRun(t, "/bin/sh", saltCommand(t, given), program(t, "echo said; exit 4\n"))
	assert.Equal(t, saltResult{Result: true, Comment: "held (4): said"}, result)
	assert.Zero(t, code)
	_, code, _ = saltRun(t, "/bin/sh", saltCommand(t, given), program(t, "exit 1\n"))
	assert.Equal(t, 1, code)
}

// A node that waits for the lock of its fleet is no failure: the comment says for whom it waits. Another hold is.
func TestSaltWaitsForTheLock(t *testing.T) {
	t.Parallel()
	pillar := map[string]any{"image_update": map[string]any{"lock_wait": 0}}
	states := saltStates(t, saltOrch, map[string]saltNode{"a": {File: offers}}, pillar)
	given, _ := states[1].Args["pillar"].(map[string]any)
	command := saltCommand(t, given)
	held := func(hold string) string {
		return program(t, "[ \"$*\" = apply ] || exit 99\necho 'etcd.yaml  held  apply: held: "+hold+": holder b'; exit 4\n")
	}
	soon := program(t, "cd \"${0%/*}\"\n[ -e free ] && exit 0\necho 'apply: held: lock: holder b'; exit 4\n")
	require.NoError(t, os.WriteFile(filepath.Join(soon, "sleep"), []byte("#!/bin/sh\n: >\"${0%/*}/free\"\n"), 0o755))
	result, _, _ := saltRun(t, "/bin/sh", saltCommand(t, nil), soon)
	assert.Equal(t, saltResult{Result: true, Changed: true, Comment: "done (0): "}, result, "it was waited for")
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		result, code, _ := saltRun(t, shell, command, held("lock"))
		assert.Equal(t, saltResult{Result: true, Comment: "waits for the lock of the fleet (4): etcd.yaml  held  apply: held: lock: holder b"}, result)
		assert.Zero(t, code)
		result, code, _ = saltRun(t, shell, command, held("quorum"))
		assert.Equal(t, saltResult{Comment: "held (4): etcd.yaml  held  apply: held: quorum: holder b"}, result)
		assert.Equal(t, 4, code)
	}
}

// Whatever the agent says stays one line of words for Salt, and is shown as it was beside it.
func TestSaltReadsAnyReason(t *testing.T) {
	t.Parallel()
	said := "velum.yaml  rebuild  held  a \"quoted\" 'word', $(x) `y` C:\\z\r\nnext\tkey=value %s\u00e9"
	agent := program(t, "cat <<'END'\n"+said+"\nEND\nprintf 'error: of stderr' >&2\nexit 4\n")
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		result, _, stdout := saltRun(t, shell, saltCommand(t, nil), agent)
		assert.Equal(t, saltResult{Comment: "held (4): velum.yaml  rebuild  held  a 'quoted' 'word', $(x) `y` C:/z;nextkey:value %s;error: of stderr"}, result)
		assert.True(t, strings.HasPrefix(stdout, said+"\nerror: of stderr\n\n"), "%q", stdout)
	}
}
