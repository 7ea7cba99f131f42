// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// Others than SUSE publish v1.34.2 under v1.34 and v1, and a catalog lists v1.34.2.
func TestFloatingTagIsGivenTheReleaseOfACatalogUnderIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		followed string
		updates  tags.Change
		listed   []string // the newest first
		want     string   // empty: none is under the followed tag
	}{
		{"v1.34", tags.Patch, []string{"v1.34.2", "v1.34.1"}, "v1.34.2"},
		{"1.34.2", tags.Patch, []string{"1.34.2"}, "1.34.2"},
		{"v1.34", tags.Minor, []string{"v1.35.1"}, "v1.35.1"}, // as short as it was
		// A variant is never left.
		{"1.34-alpine", tags.Patch, []string{"1.34.2", "1.34.2-alpine", "1.34.3"}, "1.34.2-alpine"},
		{"1.34-alpine", tags.Patch, []string{"1.34.2"}, ""},
		{"latest", tags.Minor, []string{"1.34.2"}, ""},
		// SUSE's scheme: the application version is given as a whole.
		{"1.34-rev1", tags.Patch, []string{"1.34-rev1-build2.1"}, "1.34-rev1-build2.1"},
		{"1.34", tags.Patch, []string{"1.34-rev1-build2.1"}, "1.34-rev1-build2.1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			name := fmt.Sprintf("%s of %v", c.followed, c.listed)
			w := newWorld(t)
			w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: c.updates} }
			w.Catalog = agenttest.NewCatalog()
			before := w.Registry.Publish(velum, c.followed)
			w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":"+c.followed))
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":"+c.followed))
			w.runs("velum.yaml", "velum", before.Digest)
			byTag := map[string]release.Release{"": before}
			for _, tag := range slices.Backward(c.listed) {
				byTag[tag] = w.Registry.Publish(velum, tag)
				w.promote(byTag[tag], func(is *catalog.Listed) { is.Tag = tag })
			}

			s := w.check()

			offered := image(s, "velum.yaml", "velum").Offered
			if c.want == "" {
				assert.Nil(t, offered, name)
			} else if assert.NotNil(t, offered, "%s: %s", name, s.Reason) {
				assert.Equal(t, c.want, offered.Tag, name)
			}
			w.apply()
			w.runs("velum.yaml", "velum", byTag[c.want].Digest)
		})
	}
}

// The name of a release tells how much it changes, and a rule may refuse that.
func TestPatchUnderAFloatingTagIsNotAllowedByARuleForRevisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Catalog = agenttest.NewCatalog()
	w.Registry.Publish(velum, "v1.34")
	w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":v1.34"))
	w.promote(w.Registry.Publish(velum, "v1.34.2"), func(is *catalog.Listed) { is.Tag = "v1.34.2" })

	s := w.check()

	assert.Equal(t, []status.NotAllowed{
		{Image: velum, Tag: "v1.34.2", Rule: policy.RuleUpdates, Key: "updates: patch"},
	}, s.NotAllowed)
}
