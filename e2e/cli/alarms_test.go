// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/story"
)

// Prometheus accepts the alerts, and each is shown to be silent and to fire. internal/face/metrics tests that their metrics
// are served: an alert for another metric would never fire.
func TestAlarms(t *testing.T) {
	t.Parallel()
	const rules, trials = "image-update-agent.rules.yml", "image-update-agent.test.yml"
	checkout := story.Checkout(t)
	promtool := filepath.Join(story.Shell(t, checkout, "tools/setup where prometheus"), "promtool")
	dir := filepath.Join(checkout, "packaging/prometheus")
	assert.Contains(t, story.Shell(t, dir, `"$1" check rules "$2"`, promtool, rules), "SUCCESS")
	assert.Contains(t, story.Shell(t, dir, `"$1" test rules "$2" 2>&1`, promtool, trials), "SUCCESS")

	names := all(t, `(?m)^  - alert: (\w+)$`, story.Read(t, dir, rules))
	slices.Sort(names)
	tried := story.Read(t, dir, trials)
	for what, pattern := range map[string]string{
		"silent": `(?m)^  - \{alertname: (\w+), eval_time: \w+, exp_alerts: \[\]\}$`,
		"sounds": `(?m)^  - alertname: (\w+)\n    eval_time: \w+\n    exp_alerts:\n    - exp_labels: `,
	} {
		found := all(t, pattern, tried)
		slices.Sort(found)
		assert.Equal(t, names, slices.Compact(found), what)
	}
}

// all returns the group of each match of a pattern.
func all(t *testing.T, pattern, text string) (found []string) {
	t.Helper()
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	require.NotEmpty(t, found, pattern)
	return found
}
