// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/status"
)

var twoPulls = []status.Progress{
	{Reference: "r/velum:1-rev1-build1.1", Phase: "resolving"},
	{Reference: "r/db@sha256:abc", Phase: "downloading", Done: 1e6, Total: 4e6},
	{Reference: "r/velum:1-rev1-build1.1", Phase: "downloading", Done: 2e6, Total: 2e6},
	{Reference: "r/velum:1-rev1-build1.1", Phase: "done", Done: 2e6, Total: 2e6},
	{Reference: "r/db@sha256:abc", Phase: "failed"},
}

func TestProgressOnATerminalIsOneLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := NewProgress(&out)
	p.isTerminal = true
	for _, e := range twoPulls {
		p.Show(e)
	}
	p.End()
	assert.Equal(t, []string{
		"",
		"resolving   r/velum:1-rev1-build1.1",
		"2 pulls [######..................] 1.0 of 4.0 MB: db 25%, velum:1-rev1-build1.1",
		"2 pulls [############............] 3.0 of 6.0 MB: db 25%, velum:1-rev1-build1.1 100%",
		"done        r/velum:1-rev1-build1.1 [########################] 2.0 of 2.0 MB",
		"failed      r/db@sha256:abc",
		"",
	}, strings.Split(out.String(), "\r\x1b[K"))
}

func TestProgressElsewhereIsALinePerPhase(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := NewProgress(&out)
	for _, e := range twoPulls {
		p.Show(e)
		p.Show(e)
	}
	p.End()
	assert.Equal(t, `resolving r/velum:1-rev1-build1.1
downloading r/db@sha256:abc
downloading r/velum:1-rev1-build1.1
done r/velum:1-rev1-build1.1
failed r/db@sha256:abc
`, out.String())
}
