// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/story"
)

// Prometheus accepts each query of the dashboard, here as recording rules. internal/face/metrics tests that their metrics
// are served.
func TestDashboard(t *testing.T) {
	t.Parallel()
	checkout := story.Checkout(t)
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(story.Read(t, checkout, "packaging/grafana/image-update-agent.json")), &dashboard))
	require.Greater(t, len(dashboard.Panels), 8)
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	ids, places := map[int]bool{}, map[string]bool{}
	for _, p := range dashboard.Panels {
		assert.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				place := fmt.Sprintf("%d %d", x, y)
				assert.False(t, places[place] || x >= 24, "%s lies over another panel", p.Title)
				places[place] = true
			}
		}
		require.NotEmpty(t, p.Targets, p.Title)
		for n, target := range p.Targets {
			rules = append(rules, rule{fmt.Sprintf("panel:%d:%d", p.ID, n), target.Expr})
		}
	}
	text, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yml"), text, 0o600)) // JSON is YAML
	promtool := filepath.Join(strings.TrimSpace(story.Shell(t, checkout, "tools/setup where prometheus")), "promtool")
	assert.Contains(t, story.Shell(t, dir, `"$1" check rules rules.yml`, promtool), fmt.Sprintf("SUCCESS: %d rules found", len(rules)))
}
