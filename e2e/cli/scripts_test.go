// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// TestStories runs the stories of testdata/scripts. The scripts of a directory share a node, one after the other, since
// a kubelet costs seconds; each begins with a node that has neither pods nor an agent. scriptCommands has their words.
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

// scriptT runs scripts one after the other, and shows what the node says about one that failed.
type scriptT struct {
	*testing.T
	stage *stage
}

// Parallel is not wanted: the scripts of a directory share a node.
func (scriptT) Parallel() {}

// Verbose makes a script that passes say as little as a test in Go.
func (scriptT) Verbose() bool { return false }

// Run runs a script.
func (t scriptT) Run(name string, script func(testscript.T)) {
	t.T.Run(name, func(sub *testing.T) { script(scriptT{T: sub, stage: t.stage}) })
}

// FailNow explains.
func (t scriptT) FailNow() {
	t.stage.explain(t.T)
	t.T.FailNow()
}
