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

// Every name of a hold has a row, with a meaning and a remedy for each way in which it is set.
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
			assert.NotEmpty(t, got.Summary, kind.Name)
		}
	}
}

// The details are what the summary and the other fields do not say.
func TestSummaryAndDetails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		is   Hold
		want [2]string
	}{
		{Hold{Name: HoldRequested, Reason: "r.io/velum: wait", Note: "wait", By: ByPerson}, [2]string{"wait", ""}},
		{Hold{Name: HoldRequested, Reason: "r.io/velum", By: ByConfiguration}, [2]string{"The configuration holds it.", ""}},
		{Hold{Name: HoldBusy, Reason: "an update runs", Grain: "g"}, [2]string{"Another operation works on the node. Its grain: g", "an update runs"}},
		{Hold{Name: HoldBusy, Reason: "grains: denied"}, [2]string{"The grains cannot be read.", "grains: denied"}},
		{Hold{Name: HoldRollout, Reason: "at noon", Until: time.Unix(1, 0)}, [2]string{"The rollout has not reached this node yet.", ""}},
		{Hold{Name: HoldRollout, Reason: "paused"}, [2]string{"The publisher has paused the rollout.", ""}},
		{Hold{Name: HoldDisk, Reason: "1 GiB is free"}, [2]string{"The image filesystem has too little space.", "1 GiB is free"}},
	} {
		got := c.is.Explained()
		assert.Equal(t, c.want, [2]string{got.Summary, got.Details}, c.is.Reason)
	}
}

// Where a person may not apply either, each remedy is still a whole sentence.
func TestRemediesWithoutAnApply(t *testing.T) {
	t.Parallel()
	for _, kind := range HoldKinds() {
		for _, h := range Explained([]Hold{{Name: kind.Name}}, []Hold{{Name: HoldReboot}}) {
			assert.NotRegexp(t, "^(or|and) |image-update-agent apply", h.Remedy, h.Name)
		}
	}
}

func TestRemedyNamesWhatHolds(t *testing.T) {
	t.Parallel()
	for want, h := range map[string]Hold{
		"image-update-agent resume IMAGE":                                                      {},
		"image-update-agent resume velum; or wait until it ends":                               {Image: "r/caasp/velum", By: ByPerson, Until: time.Unix(1, 0)},
		"image-update-agent resume --all":                                                      {Image: "*"},
		"remove its `hold` from the configuration and run systemctl reload image-update-agent": {Image: "r/i", By: ByConfiguration},
	} {
		h.Name = HoldRequested
		assert.Equal(t, want, h.Explained().Remedy)
	}
	assert.Contains(t, Hold{Name: HoldBusy, Grain: "tx_update"}.Explained().Remedy, ": salt-call --local grains.delkey tx_update")
	until := time.Unix(1, 0)
	standing := StandingHold{Repository: "*", Name: HoldRequested, Until: &until, By: Actor{Kind: ByPerson}}
	assert.Equal(t, "image-update-agent resume --all; or wait until it ends", standing.Explained().Remedy)
}

// Data from another version of the daemon stays; an unknown hold is shown without a remedy.
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
		"remedy": "wait for the window; or apply now: image-update-agent apply",
		"summary": "No maintenance window is open."}]`, string(text))
}
