// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// TestStories runs the stories of testdata/scripts. The scripts of a directory share a node, one after another, because
// a kubelet takes seconds to start; each begins without pods and without an agent. scriptCommands defines their words.
func TestStories(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("testdata/scripts")
	require.NoError(t, err)
	for _, entry := range entries {
		t.Run(entry.Name(), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			testscript.RunT(scriptT{T: t, stage: s}, testscript.Params{
				Dir: filepath.Join("testdata/scripts", entry.Name()), Setup: s.setUp, Cmds: s.commands(),
				RequireUniqueNames: true,
			})
		})
	}
}

// scriptT runs scripts one after another, and prints the state of the node after a failed one.
type scriptT struct {
	*testing.T
	stage *stage
}

// Parallel does nothing: the scripts of a directory share a node.
func (scriptT) Parallel() {}

// Verbose makes a passing script as quiet as a Go test.
func (scriptT) Verbose() bool { return false }

// Run runs a script.
func (t scriptT) Run(name string, script func(testscript.T)) {
	t.T.Run(name, func(sub *testing.T) { script(scriptT{T: sub, stage: t.stage}) })
}

// FailNow prints the state and fails.
func (t scriptT) FailNow() {
	t.stage.explain(t.T)
	t.T.FailNow()
}
