// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// agent/status lists the phases of long work. The Cockpit page knows each of them, and has words for those that do not
// end it.
func TestPhasesAreKnown(t *testing.T) {
	t.Parallel()
	text := func(name string) string {
		content, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		return string(content)
	}
	ends := map[string]bool{"done": true, "failed": true, "interrupted": true}
	phases := regexp.MustCompile(`(?m)^\tPhase\w+ += "(\w+)"$`).FindAllStringSubmatch(text("agent/status/progress.go"), -1)
	require.Greater(t, len(phases), 10)
	var unknown []string
	for _, phase := range phases {
		isKnown := strings.Contains(text("cockpit/daemon.js"), `"`+phase[1]+`"`) &&
			strings.Contains(text("cockpit/work.js")+text("cockpit/model.js"), ` `+phase[1]+`: _(`)
		if !ends[phase[1]] && !isKnown {
			unknown = append(unknown, phase[1])
		}
	}
	assert.Empty(t, unknown)
}
