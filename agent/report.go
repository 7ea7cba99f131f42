// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/report"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// report updates the record, announces updates to the admin's UI and publishes the status. The
// plan was made after the steps.
func (c *cycle) report(
	ctx context.Context, inv node.Inventory, offers map[release.Question]source.Offer, pl plan.Plan,
) (cycleResult, error) {
	rec := &c.agent.records.Record
	use := plan.InUse(pl, offers, inv, c.agent.Now())
	rec.NoteRunning(use.Pods, c.agent.Policy.Prune.Keep)
	rec.MinSpace = c.agent.space.MinSpace()
	rec.Retain(use, c.agent.Now())
	c.agent.space.Restore(rec.MinSpace)
	c.keepTable(ctx, inv, c.approvedTags(pl))
	c.unlock(ctx, use)
	r := c.newReport(len(report.Unasked(pl)) > 0)
	r.Catalog = c.listing(ctx)
	r.Rollbacks, r.NoRollbacks = c.rollbacks(inv, pl)
	updates := report.UpdatesOf(pl)
	announced := r.Announcement(pl, updates)
	outside.Hide(&announced)
	switch err := c.agent.Announcer.Announce(ctx, announced); {
	case errors.Is(err, release.ErrHeld):
		c.log.Info("grain not written while the node is busy", "reason", err)
	case err != nil:
		c.log.Warn("cannot write the grain", "err", err)
		r.Errs[report.GrainKey] = fmt.Errorf("grain: %w", err)
	}
	state, reasons := r.NodeState(pl)
	c.agent.nodes.Missing = pl.Missing()
	c.agent.watched.Update(pl, inv)
	s := r.NewStatus(state, reasons...)
	s.Sources, s.Updates, s.NotAllowed = report.SourceStatus(*rec), updates, pl.NotAllowed()
	s.StandingHolds = report.StandingHolds(r, pl)
	for _, p := range pl.Pods {
		s.PodManifests = append(s.PodManifests, r.PodStatus(p))
	}
	r.AddImages(&s, pl)
	s.Releases = r.Releases(pl)
	err := c.agent.records.Save(ctx)
	if err != nil {
		s.SetFailed(status.Reason{Kind: status.KindRecord, Text: err.Error(), ErrorKind: status.ErrorKindOf(err)})
		c.log.Error("cannot save the record", "err", err)
	}
	published := c.agent.records.Publish(ctx, &s)
	if published != nil {
		c.log.Warn("cannot publish the status", "err", published)
	}
	if c.request.poll != source.PollNone {
		logPoll(c.log, s)
	}
	return cycleResult{status: s, reported: true, results: c.results}, errors.Join(err, published)
}

// logPoll logs the results of a poll, one line each.
func logPoll(log *slog.Logger, s status.Status) {
	failed := 0
	for _, from := range s.Sources {
		if from.Failures > 0 {
			failed++
		}
	}
	next := "never"
	if s.NextCheck != nil {
		next = s.NextCheck.Format(time.RFC3339)
	}
	log.Info("polled", "sources", len(s.Sources), "unanswered", failed, "updates", len(s.Updates), "state", s.State,
		"next", next)
}

// rollbacks returns the targets of people's rollbacks that are possible now, by pod manifest, and why others are not.
func (c *cycle) rollbacks(inv node.Inventory, pl plan.Plan) (to map[string]record.Override, against map[string]string) {
	pods := slices.DeleteFunc(slices.Clone(pl.Pods), func(p plan.PodPlan) bool {
		return !slices.ContainsFunc(p.Images, func(i plan.ImagePlan) bool {
			return c.agent.records.Record.HasTarget(p.File, i.Want.Image.Container, i.Running.Digest)
		})
	})
	to, against = map[string]record.Override{}, map[string]string{}
	for _, rb := range plan.Rollbacks(inv, c.agent.records.Record, c.agent.Policy, c.agent.Now(), pods, plan.All()) {
		switch {
		case rb.To == nil:
		case rb.Err != nil:
			against[rb.Pod.File] = rb.Err.Error()
		case len(rb.Missing) > 0:
			against[rb.Pod.File] = c.lacks(rb.Missing[0])
		default:
			to[rb.Pod.File] = *rb.To
		}
	}
	return to, against
}

// lacks says that the node lacks an image, and why it could not be fetched.
func (c *cycle) lacks(at record.PinnedImage) string {
	text := at.Repository + ":" + at.Tag + " is not on the node"
	if err := c.agent.space.Failure(release.Key(at.Repository, at.Digest)); err != nil {
		text += ": " + err.Error()
	}
	return text
}

// unobserved reports a cycle that could not observe the node.
func (c *cycle) unobserved(ctx context.Context, cause error) (cycleResult, error) {
	if ctx.Err() != nil {
		return cycleResult{}, cause
	}
	c.log.Error("cycle interrupted", "err", cause)
	s := c.newReport(false).NewStatus(
		status.StateFailed, status.Reason{Kind: status.KindNode, Text: cause.Error(), ErrorKind: status.ErrorKindOf(cause)},
	)
	s.Sources = report.SourceStatus(c.agent.records.Record)
	published := c.agent.records.Publish(ctx, &s)
	return cycleResult{status: s, reported: true, results: c.results}, errors.Join(cause, published)
}

// initialStatus returns the status before the first cycle.
func (a *Agent) initialStatus() status.Status {
	c := &cycle{agent: a}
	return c.newReport(false).NewStatus(status.StateUnchecked, status.Reason{Kind: status.KindStarting, Text: "starting"})
}

func (c *cycle) newReport(unasked bool) *report.Report {
	a, rec := c.agent, &c.agent.records.Record
	r := &report.Report{
		Record: rec, Loaded: a.records.IsLoaded(), Errs: c.results.errors(), Policy: a.Policy, Now: a.Now,
		Version: a.Version, Pacer: a.Pacer, Unasked: unasked, LocalRegistry: a.LocalRegistry.Status(rec.AwaySince),
	}
	if c.agent.timetable != nil {
		r.Timetable = c.agent.timetable
	}
	return r
}
