// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/report"
	"github.com/kubic-project/image-update-agent/agent/status"
)

func TestReleases(t *testing.T) {
	t.Parallel()
	fails := func(f record.Failure) func(*report.Report, *plan.PodPlan) {
		return func(r *report.Report, p *plan.PodPlan) {
			p.ID = "an offer"
			r.Record.Failed.Set(file, f)
		}
	}
	image := func(edit func(i *plan.ImagePlan)) func(*report.Report, *plan.PodPlan) {
		return func(_ *report.Report, p *plan.PodPlan) { edit(&p.Images[0]) }
	}
	for name, c := range map[string]struct {
		plan     plan.Plan
		edit     func(*report.Report, *plan.PodPlan)
		one, two status.ReleaseState // "": not listed
	}{
		"current":    {current(), func(*report.Report, *plan.PodPlan) {}, "running", ""},
		"staged":     {offered(), func(*report.Report, *plan.PodPlan) {}, "running", "staged"},
		"not staged": {offered(), image(func(i *plan.ImagePlan) { i.Staged = false }), "running", "offered"},
		"its time in the rollout has not come": {offered(), func(_ *report.Report, p *plan.PodPlan) {
			p.Waits = []status.Hold{{Name: status.HoldRollout}}
		}, "running", "staged"},
		"a person's hold": {offered(), func(_ *report.Report, p *plan.PodPlan) {
			p.Holds = []status.Hold{{Name: status.HoldRequested}}
		}, "running", "held"},
		"a freeze": {offered(), func(_ *report.Report, p *plan.PodPlan) {
			p.Waits = []status.Hold{{Name: status.HoldFreeze}}
		}, "running", "held"},
		"nothing is offered": {offered(), func(_ *report.Report, p *plan.PodPlan) {
			p.Holds = []status.Hold{{Name: status.HoldUnresolved}}
		}, "running", ""},
		"denied": {current(), func(r *report.Report, _ *plan.PodPlan) {
			r.Record.Denied.Set(release.Key(velum, two), record.Denial{Name: "4.0.0-rev2", PodManifest: file})
		}, "running", "failed"},
		"denied, and replaced since": {current(), func(r *report.Report, _ *plan.PodPlan) {
			r.Record.Denied.Set(release.Key(velum, two), record.Denial{PodManifest: file, Past: true})
		}, "running", ""},
		"denied, of another image": {current(), func(r *report.Report, _ *plan.PodPlan) {
			r.Record.Denied.Set(release.Key("r.io/other", two), record.Denial{PodManifest: file})
		}, "running", ""},
		"denied, but runs": {current(), func(r *report.Report, _ *plan.PodPlan) {
			r.Record.Denied.Set(release.Key(velum, one), record.Denial{PodManifest: file})
		}, "failed", ""},
		"its apply failed":         {offered(), fails(record.Failure{Offer: "an offer"}), "running", "failed"},
		"another apply had failed": {offered(), fails(record.Failure{Offer: "another"}), "running", "staged"},
		"without an apply":         {current(), fails(record.Failure{Running: "one"}), "failed", ""},
		"down":                     {current(), image(func(i *plan.ImagePlan) { i.Down = &status.Down{} }), "failed", ""},
		"starting":                 {current(), image(func(i *plan.ImagePlan) { i.Down = &status.Down{Starting: true} }), "starting", ""},
		"no container": {current(), image(func(i *plan.ImagePlan) {
			i.Target.Digest, i.Running, i.Down = one, status.Named{}, &status.Down{Absent: true}
		}), "failed", ""},
		"no container before an update": {offered(), func(r *report.Report, p *plan.PodPlan) {
			r.Record.Good.Set(record.GoodKey(file, "velum"), record.Good{Repository: velum, Running: one})
			p.Images[0].Running, p.Images[0].Down = status.Named{}, &status.Down{}
		}, "failed", "staged"},
		"one container of two has it": {offered(), func(_ *report.Report, p *plan.PodPlan) {
			done := p.Images[0]
			done.Running, done.Change = status.Named{Digest: two}, ""
			p.Images = append(p.Images, done)
		}, "running", "staged"},
	} {
		r := newReport()
		c.edit(r, &c.plan.Pods[0])
		got := map[string]status.ReleaseState{}
		for _, is := range r.Releases(c.plan) {
			assert.Equal(t, velum, is.Image, name)
			got[is.Digest.String()] = is.State
		}
		want := map[string]status.ReleaseState{}
		for of, state := range map[string]status.ReleaseState{one.String(): c.one, two.String(): c.two} {
			if state != "" {
				want[of] = state
			}
		}
		assert.Equal(t, want, got, name)
	}
	assert.NotNil(t, newReport().Releases(plan.Plan{}))
}
