// SPDX-License-Identifier: Apache-2.0

package salt

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestSalt runs the steps of an update by Salt that need no master: the agent's grain makes the orchestration select
// the node, the state's own command applies, and afterwards the grain reports that it is done.
func TestSalt(t *testing.T) {
	t.Parallel()
	n, daemon, port := story.Running(t, "settle: 0\n")
	n.WriteFile(story.GrainFile, "roles:\n- kube-minion\n")
	chosen := func() string {
		states := story.SaltStates(t, saltOrch, map[string]story.SaltNode{"node1": {File: n.ReadFile(story.GrainFile)}}, nil)
		return states[len(states)-1].ID
	}
	command, program := story.SaltCommand(t, nil), story.Program(t, fmt.Sprintf("exec '%s' \"$@\" --root '%s'\n", n.AgentProgram(), n.Root))
	run := func() story.SaltResult {
		result, _, _ := story.SaltRun(t, "/bin/sh", command, program)
		return result
	}
	story.Check(t, n)
	assert.Equal(t, "nothing is to be done", chosen())
	assert.Equal(t, story.SaltResult{Result: true, Comment: "nothing to do (3): velum.yaml nothing"}, run())

	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	s := story.Check(t, n)
	require.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, "image update of node1", chosen())
	n.Registry.Down()
	held := run()
	assert.False(t, held.Result)
	assert.Regexp(t, `^held \(4\): .*velum\.yaml rebuild held .*registry does not answer`, held.Comment)
	assert.Equal(t, "image update of node1", chosen(), "it is offered still")
	story.Answers(t, port, "4.0.0-rev1-build1.1")

	n.Registry.Up()
	done := run()
	assert.True(t, done.Result, done.Comment)
	assert.True(t, done.Changed)
	assert.Regexp(t, `^done \(0\): .*velum\.yaml rebuild applied`, done.Comment)
	assert.Contains(t, n.ReadFile(story.GrainFile), "roles:\n- kube-minion\nimage_update_available: false\n",
		"before the command ends: Salt reads the grains right after it")
	assert.Equal(t, "nothing is to be done", chosen())
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")

	assert.Equal(t, 0, daemon.Stop().Code)
	away := run()
	assert.False(t, away.Result)
	assert.Regexp(t, `^failed \(1\): .*hint: start the daemon`, away.Comment)
	n.WriteFile(story.ConfigFile, "intervall: 1h\n")
	wrong := run()
	assert.False(t, wrong.Result)
	assert.Regexp(t, `^invalid arguments or configuration \(2\): .*intervall`, wrong.Comment)
}
