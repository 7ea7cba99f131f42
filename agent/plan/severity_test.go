// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/status"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
)

// severe makes the catalog give a release a severity.
func severe(s format.Severity) func(*catalog.Listed) {
	return func(l *catalog.Listed) { l.Advisory = &format.Advisory{Severity: s, Fixes: []string{"CVE-2026-1234"}} }
}

// Mode auto leaves to a person what no verified catalog calls severe enough; no severity overrides anything else.
func TestModeAutoAppliesWhatIsSevereEnough(t *testing.T) {
	t.Parallel()
	const apply = "keep velum.yaml; apply velum.yaml (rebuild)"
	waits := func(has string) string {
		return "rebuild; staged; waits: severity: its severity is " + has +
			", and mode auto applies only updates from important (apply.minSeverity) | keep velum.yaml"
	}
	each(t, func() *world {
		w := empty()
		w.catalog("", first, rebuild)
		w.template("velum.yaml", "velum="+velum+":4.0.0-rev1")
		w.isBound("velum.yaml", "velum", first)
		w.offer("4.0.0-rev1", rebuild)
		w.stage(rebuild)
		w.policy.Auto, w.policy.MinSeverity = true, format.SeverityImportant
		return w
	}, map[string]row{
		"none is known":          {func(*world) {}, waits("not known")},
		"too low":                {func(w *world) { w.listed(rebuild, severe("moderate")) }, waits("moderate")},
		"enough":                 {func(w *world) { w.listed(rebuild, severe("important")) }, "rebuild; staged | " + apply},
		"more":                   {func(w *world) { w.listed(rebuild, severe("critical")) }, "rebuild; staged | " + apply},
		"of the running release": {func(w *world) { w.listed(first, severe("critical")) }, waits("not known")},
		"of a release in between": {func(w *world) {
			between, last := rebuild, rel(velum, "4.0.0-rev1-build1.3")
			w.catalog("", last)
			w.listed(between, severe("important"))
			w.listed(last, severe("low"))
			w.offer("4.0.0-rev1", last)
			w.stage(last)
		}, "rebuild; staged | keep velum.yaml; prune r.io/caasp/velum:4.0.0-rev1-build1.2; apply velum.yaml (rebuild)"},
		"by a person": {
			func(w *world) { w.listed(rebuild, severe("low")); w.approve() },
			waits("low") + "; apply velum.yaml (rebuild)",
		},
		"in manual mode": {func(w *world) { w.policy.Auto = false }, "rebuild; staged | keep velum.yaml"},
		"outside of a window": {
			func(w *world) { w.listed(rebuild, severe("critical")); w.policy.Window = night },
			"rebuild; staged; waits: window: the next maintenance window opens at 2026-05-02T02:00:00Z | keep velum.yaml",
		},
		"before its rollout": {func(w *world) {
			w.listed(rebuild, severe("critical"))
			w.listed(rebuild, func(l *catalog.Listed) { l.Rollout = catalog.Rollout{From: now.Add(time.Hour)} })
		}, "rebuild; staged; waits: rollout: 4.0.0-rev1-build1.2 rolls out to this node at 2026-05-01T13:00:00Z | keep velum.yaml"},
		"held":   {func(w *world) { w.listed(rebuild, severe("critical")); w.holds(velum) }, "rebuild; staged; hold: r.io/caasp/velum: wait | keep velum.yaml"},
		"locked": {func(w *world) { w.listed(rebuild, severe("critical")); w.locked("velum.yaml") }, "rebuild; staged; waits: lock: taken | keep velum.yaml"},
		"withdrawn": {func(w *world) {
			w.listed(rebuild, severe("critical"))
			w.listed(rebuild, func(l *catalog.Listed) { l.Withdrawn = &catalog.Withdrawal{Reason: "bad"} })
		}, " | "},
	}, func(w *world) string { p := w.decide(); return of(p, "velum.yaml") + " | " + steps(p) })
}

// One of a set that is severe enough takes the others along; without it the set waits.
func TestASetCountsByItsHighestSeverity(t *testing.T) {
	t.Parallel()
	w := setNode()
	w.policy.Auto, w.policy.MinSeverity = true, format.SeverityImportant
	names := func() (names []string) {
		for _, p := range w.decide().Pods {
			for _, h := range p.Waits {
				names = append(names, h.Name)
			}
		}
		return names
	}
	assert.Contains(t, names(), status.HoldSeverity)
	w.listed(rebuildDB, severe("critical"))
	assert.Empty(t, names())
	assert.Contains(t, steps(w.decide()), "apply velum.yaml")
}
