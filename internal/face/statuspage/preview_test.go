// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/preview"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// On a terminal that is too narrow for the table, each cell is a line.
func TestPreviewOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	rows := append([][]string{{"velum.yaml"}}, rowsOfPreview(preview.Image{
		Container: "velum", Reference: caasp + "velum:4.0.0-rev1", Repository: caasp + "velum",
		Offered: "4.0.0-rev2", Change: "revision",
		NotAllowed: []policy.Refusal{{Tag: "4.1.0", Key: "updates: minor"}, {Tag: "5.0.0", Key: "max"}},
	})...)
	rows = append(rows, rowsOfPreview(preview.Image{Container: "db", Reference: "mariadb:10.0", Repository: "mariadb"})...)
	var out bytes.Buffer
	p := terminal.NewPage(&out, noon)
	p.Width = 40
	require.False(t, p.Fits(rows))
	stackedPreview(p, rows)
	require.NoError(t, p.Flush())
	assert.Equal(t, `velum.yaml
  velum  registry.suse.com/caasp/v4/velum
    runs       4.0.0-rev1
    would get  4.0.0-rev2 (revision)
    newer      4.1.0 (updates: minor)
    newer      5.0.0 (max)
  db  mariadb
    runs       10.0
`, out.String())
}
