// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A grain has as many fixes as fit, each whole, and without a catalog no field for them.
func TestFixesThatFit(t *testing.T) {
	t.Parallel()
	assert.Empty(t, fitting(nil))
	assert.Equal(t, "CVE-2026-1 bsc#2", fitting([]string{"CVE-2026-1", "bsc#2"}))
	many := fitting(strings.Fields(strings.Repeat("CVE-2026-12345 ", 100)))
	assert.LessOrEqual(t, len(many), maxText)
	assert.Greater(t, len(many), maxText-20)
	assert.True(t, strings.HasSuffix(many, "CVE-2026-12345"), many)
	g, err := Grain{State: "staged", Updates: []Update{{Image: "a"}, {Image: "b", Severity: "low", Fixes: many}}}.normalized()
	require.NoError(t, err)
	lines := g.updatesEntry().lines
	assert.Equal(t, 1, strings.Count(lines, "severity: \"low\""), lines)
	assert.Equal(t, 1, strings.Count(lines, "fixes: "), lines)
}
