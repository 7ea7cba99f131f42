// SPDX-License-Identifier: Apache-2.0

package page

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/manifests"
)

// everyHold has each hold in each form of its summary.
func everyHold() []status.Hold {
	var all []status.Hold
	for _, name := range status.HoldNames() {
		for _, h := range []status.Hold{
			{Reason: "reason of " + name}, {Reason: "other reason of " + name, Until: time.Now().Add(time.Hour), Grain: "tx_update", By: status.ByConfiguration},
		} {
			h.Name = name
			all = append(all, h.Explained())
		}
	}
	return all
}

// What the daemon says in fields, the page says in the language of the session; the details stay as they are.
func TestPageTranslatesTheDaemonsTexts(t *testing.T) {
	t.Parallel()
	onEachCockpit(t, func(t *testing.T, version string) {
		s, holds := podsOf(1), everyHold()
		s.PodManifests[0].Holds = holds
		s.Images[0].Refused = []policy.Refusal{{Tag: "5.0.0", Rule: policy.RuleOlder, Reason: "built earlier"}}
		s.PodManifests[0].Untouched = []status.Untouched{
			{Path: "spec", Line: 7, Reference: "r.example/a", Reason: manifests.ReasonDigest, Text: manifests.ReasonText(manifests.ReasonDigest)},
		}
		s.PodManifests[0].Error, s.PodManifests[0].ErrorKind = "4 MB free", status.ErrorDisk
		s.Reasons = []status.Reason{{Kind: status.KindStarting, Text: "starting"}}
		page := startDaemon(t, s).open(t, version, "de-DE", 0)
		page.Await(story.PageState, "Updates sind bereit")
		page.Await("#status", "Der Daemon hat den Knoten noch nicht beobachtet")
		shown := page.Text(".pod")
		for _, h := range holds {
			assert.NotContains(t, shown, h.Summary)
			assert.Contains(t, shown, h.Details)
		}
		for _, text := range []string{
			"Kein Wartungsfenster ist offen.", "Sein Grain: tx_update", "Der Datenträger ist zu voll. 4 MB free",
			"Der Tag zeigt jetzt auf einen älteren Build. built earlier",
			"es nennt einen Digest, also startet kubelet genau dieses Image",
		} {
			assert.Contains(t, shown, text)
		}
		assert.Empty(t, page.Console())
	})
}
