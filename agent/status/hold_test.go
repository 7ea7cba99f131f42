// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every name of a hold has its row, with a meaning and a remedy for each way in which it is set.
func TestEveryHoldIsOneRow(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("hold.go")
	require.NoError(t, err)
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^\tHold\w+ += "(.+)"$`).FindAllStringSubmatch(string(source), -1) {
		names = append(names, match[1])
	}
	assert.ElementsMatch(t, names, HoldNames())
	for _, kind := range HoldKinds() {
		assert.Regexp(t, `^[^|\n]{10,}[^.]$`, kind.Meaning, kind.Name)
		for _, h := range []Hold{{}, {Grain: "g", Image: "r/i", By: ByPerson, Until: time.Unix(1, 0)}, {Image: "*"}, {By: ByConfiguration}} {
			h.Name = kind.Name
			got := h.Explained()
			assert.Regexp(t, `^[^|\n]{10,}$`, got.Remedy, kind.Name)
			assert.Equal(t, kind.OnlyAuto, got.OnlyAuto, kind.Name)
		}
	}
}

func TestRemedyNamesWhatHolds(t *testing.T) {
	t.Parallel()
	for want, h := range map[string]Hold{
		"image-update-agent unhold IMAGE":                                                   {},
		"image-update-agent unhold velum; or wait for its end":                              {Image: "r/caasp/velum", By: ByPerson, Until: time.Unix(1, 0)},
		"image-update-agent unhold --all":                                                   {Image: "*"},
		"take its `hold` out of the configuration, and systemctl reload image-update-agent": {Image: "r/i", By: ByConfiguration},
	} {
		h.Name = HoldRequested
		assert.Equal(t, want, h.Explained().Remedy)
	}
	assert.Contains(t, Hold{Name: HoldBusy, Grain: "tx_update"}.Explained().Remedy, ": salt-call --local grains.delkey tx_update")
	until := time.Unix(1, 0)
	standing := StandingHold{Repository: "*", Name: HoldRequested, Until: &until, By: Actor{Kind: ByPerson}}
	assert.Equal(t, "image-update-agent unhold --all; or wait for its end", standing.Explained().Remedy)
}

// What another version of the daemon says of a hold stays; a hold that nobody knows is shown without a remedy.
func TestExplainedKeepsWhatIsKnown(t *testing.T) {
	t.Parallel()
	said := Hold{Name: HoldWindow, Remedy: "wait", Reason: "r"}
	assert.Equal(t, said, said.Explained())
	assert.Equal(t, Hold{Name: "of a newer agent"}, Hold{Name: "of a newer agent"}.Explained())
	assert.True(t, Hold{Name: HoldSet, OnlyAuto: true}.Explained().OnlyAuto, "another pod of the set only waits")
	assert.NotNil(t, Explained())
	text, err := json.Marshal(Explained([]Hold{{Name: HoldWindow, Reason: "r"}}))
	require.NoError(t, err)
	assert.JSONEq(t, `[{"name": "window", "reason": "r", "onlyAuto": true,
		"remedy": "wait for the window; or by hand, at any time: image-update-agent apply"}]`, string(text))
}
