// SPDX-License-Identifier: Apache-2.0

package story

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// SaltDir contains the project's Salt states; SaltApply is the one that applies.
const (
	SaltDir   = "../../packaging/salt/"
	SaltApply = SaltDir + "image-update/apply.sls"
)

// SaltNode is a node as a master sees it.
type SaltNode struct {
	File   string  `json:"file"`             // /etc/salt/grains
	Loaded *string `json:"loaded,omitempty"` // the minion's last read content, if different
	Away   bool    `json:"away,omitempty"`
}

// SaltState is a state of a rendered SLS file.
type SaltState struct {
	ID       string         `json:"id"`
	Function string         `json:"function"`
	Args     map[string]any `json:"args"`
}

// saltPython sends a request to testdata/salt.py.
func saltPython(t *testing.T, request map[string]any, answer any) {
	t.Helper()
	input, err := json.Marshal(request)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "../story/testdata/salt.py")
	cmd.Stdin = bytes.NewReader(input)
	var problems strings.Builder
	cmd.Stderr = &problems
	output, err := cmd.Output()
	require.NoError(t, err, "this needs Debian's python3-jinja2 and python3-yaml: %s", problems.String())
	require.NoError(t, json.Unmarshal(output, answer))
}

// SaltStates renders an SLS file, and checks that every state that one requires exists.
func SaltStates(t *testing.T, file string, fleet map[string]SaltNode, pillar map[string]any) []SaltState {
	t.Helper()
	return saltStates(t, map[string]any{"render": file, "fleet": fleet, "pillar": pillar})
}

// SaltTest renders an SLS file as a test run does (test=True).
func SaltTest(t *testing.T, file string, fleet map[string]SaltNode) []SaltState {
	t.Helper()
	return saltStates(t, map[string]any{"render": file, "fleet": fleet, "test": true})
}

func saltStates(t *testing.T, request map[string]any) []SaltState {
	t.Helper()
	var answer struct{ States []SaltState }
	saltPython(t, request, &answer)
	require.NotEmpty(t, answer.States, "Salt calls an empty file a failure")
	for _, s := range answer.States {
		required, _ := s.Args["require"].([]any)
		for _, r := range required {
			for module, id := range r.(map[string]any) {
				assert.True(t, slices.ContainsFunc(answer.States, func(s SaltState) bool {
					return s.ID == id && strings.HasPrefix(s.Function, module+".")
				}), "%s requires %s: %v", s.ID, module, id)
			}
		}
	}
	return answer.States
}

// SaltResult is a state's result in Salt's form.
type SaltResult struct {
	Result  bool   `json:"result"`
	Comment string `json:"comment"`
	Changed bool   `json:"changed"`
}

// SaltCommand returns the script of apply.sls that a minion runs.
func SaltCommand(t *testing.T, pillar map[string]any) string {
	t.Helper()
	return SaltStates(t, SaltApply, nil, pillar)[0].Script()
}

// Script returns the script that a state of cmd.run has in its environment.
func (s SaltState) Script() string {
	env, _ := s.Args["env"].([]any)
	for _, one := range env {
		vars, _ := one.(map[string]any)
		script, _ := vars["IMAGE_UPDATE"].(string)
		return script
	}
	return ""
}

// SaltRun runs the script of a state as a minion does, with only dir on the PATH for image-update-agent.
func SaltRun(t *testing.T, shell, script, dir string) (result SaltResult, code int, stdout string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), shell, "-c", `eval "$IMAGE_UPDATE" # image-update-agent apply`)
	cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "IMAGE_UPDATE=" + script}
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
