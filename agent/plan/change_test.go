// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/release"
)

func TestWordsForPeople(t *testing.T) {
	t.Parallel()
	r := release.Release{Repository: "r.io/a", Tag: "1.0.0-rev1", Long: "1.0.0-rev1-build1.1", Digest: "sha256:d"}
	for want, step := range map[string]Step{
		"stage r.io/a:1.0.0-rev1-build1.1 (sha256:d)": {Do: StepStage, Release: r},
		"pin 1 images":           {Do: StepPin, Pins: make([]release.Pin, 1)},
		"apply a.yaml (rebuild)": {Do: StepApply, File: "a.yaml", Apply: Apply{Change: "rebuild"}},
		"write a.yaml":           {Do: StepWrite, File: "a.yaml"},
	} {
		assert.Equal(t, want, step.String())
	}
}
