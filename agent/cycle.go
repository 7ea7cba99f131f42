// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/stage"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// maxRounds bounds how often a cycle plans and acts, see isRunnableNext.
const maxRounds = 3

// Cycle observes, asks, decides and acts, once. It returns what the node is like
// afterwards. Its error is of the cycle itself (the node could not be observed, the
// record not be saved); what went wrong with one image or pod stands in the status, and
// stops no other. An interruption by a person is no failure: the cycle is to be done again.
func (a *Agent) Cycle(ctx context.Context, poll source.Poll) (status.Status, error) {
	d, err := a.cycle(ctx, purpose{poll: poll})
	return d.status, err
}

// purpose is what a cycle is for.
type purpose struct {
	poll   source.Poll
	person bool     // a person waits for its steps: it stages only what they need
	needs  []string // releases
}

// stages tells whether a release is staged in this cycle.
func (e purpose) stages(release string) bool { return !e.person || slices.Contains(e.needs, release) }

// done is what a cycle came to.
type cycleResult struct {
	status     status.Status
	reported   bool // status is known: the cycle was not interrupted
	results    results
	unfinished *interruptedError // what a person's request has left; nil: nothing
}

// cycle is one cycle under way.
type cycle struct {
	*Agent
	purpose
	log       *slog.Logger
	progress  *status.Reporter
	asker     *source.Asker
	signs     *stage.SignatureChecker
	stager    *stage.Stager
	restarter *apply.Restarter
	results   results
}

func (a *Agent) cycle(ctx context.Context, e purpose) (cycleResult, error) {
	c, err := a.begin(ctx, e)
	if err != nil {
		return c.reportUnobserved(ctx, err)
	}
	if !e.person {
		a.space.ClearFailures()
	}
	if err := c.restarter.PutBack(ctx); err != nil {
		return c.reportUnobserved(ctx, err)
	}
	inv, err := c.observe(ctx)
	if err != nil {
		return c.reportUnobserved(ctx, err)
	}
	offers, intr := c.ask(ctx, inv)
	if intr != nil {
		c.records.TrySave(ctx, "") // a reload goes on with another agent
		return cycleResult{}, intr
	}
	plan := c.decide(ctx, inv, offers)
	final := context.WithoutCancel(ctx) // report even after cancellation
	limit := maxRounds
	for again := len(plan.Steps) > 0; again && limit > 0; limit-- {
		failed, intr := stepRunner{c}.runSteps(ctx, plan.Steps)
		if intr != nil {
			c.records.TrySave(final, "") // its answers are not asked for again
			return cycleResult{}, intr
		}
		if err := c.restarter.PutBack(final); err != nil {
			return c.reportUnobserved(final, err) // a pod manifest that is set aside is no pod that has gone
		}
		if inv, err = c.observe(final); err != nil {
			return c.reportUnobserved(final, err)
		}
		offers = c.currentOffers(inv, offers)
		plan = c.decide(final, inv, offers)
		again = ctx.Err() == nil && (failed || slices.ContainsFunc(plan.Steps, c.isRunnableNext))
		if failed && limit < maxRounds+len(plan.Pods) {
			limit++ // a pod that did not come up is rolled back in any case
		}
	}
	return c.report(final, inv, offers, plan)
}

// isRunnableNext reports whether a step can be done in this cycle still: what was staged in it
// is applied in mode auto, what a pod that was rolled back is offered is staged, and
// kept, and what the node was too busy for is written.
func (c *cycle) isRunnableNext(s plan.Step) bool {
	switch {
	case s.Do == plan.StepDrop:
		return true // also where the pod manifest's other steps have failed
	case c.results.err(s.Key()) != nil || c.results.unstagedNeed(s) != "":
		return false
	case (s.Do == plan.StepStage || s.Do == plan.StepApply) && c.results.isDeferred(s.Key()):
		return false
	case s.Do == plan.StepApply:
		return s.Apply.Auto && !c.results.isApplied(s.File)
	case s.Do == plan.StepProve:
		return c.results.isApplied(s.File) // what an apply that was cut short had left to prove
	}
	return s.Do == plan.StepStage || s.Do == plan.StepKeep || s.Do == plan.StepWrite
}

// ask asks as much as a cycle is for, and looks for signatures again. A person's request
// interrupts both; then what was answered is not asked again, and who was being asked
// comes last.
func (c *cycle) ask(ctx context.Context, inv node.Inventory) (map[release.Question]source.Offer, error) {
	round, qs := c.round(inv)
	if c.person {
		return c.asker.Ask(ctx, round, qs, true), nil
	}
	ctx, end := c.queue.interruptible(ctx)
	defer end()
	if c.poll != source.PollNone {
		round.Resume(c.unfinished)
		c.unfinished = nil
	}
	offers := c.asker.Ask(ctx, round, qs, true)
	if intr := c.interruption(ctx, "poll", c.poll); intr != nil {
		if c.poll != source.PollNone {
			c.unfinished = round
		}
		return nil, intr
	}
	c.signs.VerifyAgain(ctx, c.poll == source.PollAll)
	if intr := c.interruption(ctx, "poll", source.PollNone); intr != nil {
		return nil, intr
	}
	return offers, nil
}

// round is a new round of questions, and the questions.
func (c *cycle) round(inv node.Inventory) (*source.Round, []release.Question) {
	views := follow.ReadPods(inv, c.records.Record.Overrides, c.Policy)
	held, _ := inv.Digests()
	return c.asker.NewRound(c.poll, held, follow.Running(inv, views)), follow.Questions(views, c.Policy)
}

// currentOffers are the offers for what is followed now. A step may have moved a pod
// on to another tag: what was just applied is then the last answer for it.
func (c *cycle) currentOffers(
	inv node.Inventory, asked map[release.Question]source.Offer,
) map[release.Question]source.Offer {
	out := map[release.Question]source.Offer{}
	for _, q := range follow.Questions(follow.ReadPods(inv, c.records.Record.Overrides, c.Policy), c.Policy) {
		o, ok := asked[q]
		if !ok {
			o = source.LastOffer(&c.records.Record, q, release.ErrNotAsked)
		}
		out[q] = o
	}
	return out
}

// decide plans. What the node has against an apply is asked only where there is
// one to hold: the question starts services that run on demand.
func (c *cycle) decide(ctx context.Context, inv node.Inventory, offers map[release.Question]source.Offer) plan.Plan {
	pl := plan.Decide(inv, offers, c.records.Record, c.Policy, c.Now())
	if c.Readiness != nil && pl.IsDown() {
		var err error
		if inv.Unstarted, err = c.Readiness.Waiting(ctx); err != nil {
			c.log.Debug("kubelet does not say why containers wait", "err", err)
		}
		pl = plan.Decide(inv, offers, c.records.Record, c.Policy, c.Now())
	}
	if c.Preconditions == nil || !slices.ContainsFunc(pl.Pods, func(p plan.PodPlan) bool { return p.Change != "" }) {
		return pl
	}
	if inv.RestartHolds = c.Preconditions.Holds(ctx); len(inv.RestartHolds) > 0 {
		pl = plan.Decide(inv, offers, c.records.Record, c.Policy, c.Now())
	}
	return pl
}

// Plan is what the next cycle would do if it ran now, having asked as poll
// says. It changes nothing on the node and keeps nothing.
func (a *Agent) Plan(ctx context.Context, poll source.Poll) (plan.Plan, error) {
	c, err := a.begin(ctx, purpose{poll: poll})
	if err != nil {
		return plan.Plan{}, err
	}
	inv, err := c.observe(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	round, qs := c.round(inv)
	return c.decide(ctx, inv, c.asker.Ask(ctx, round, qs, false)), nil
}

// observe observes the node.
func (c *cycle) observe(ctx context.Context) (node.Inventory, error) {
	observer := c.observer()
	inv, err := observer.ObserveFiles(ctx)
	if err != nil {
		return inv, err
	}
	defer c.progress.Heartbeat()()
	c.watched.Forget()
	if err := observer.ObserveRuntime(ctx, &inv); err != nil {
		return inv, err
	}
	if blocked := c.space.Blocked(); len(blocked) > 0 {
		inv.BlockedBySpace, inv.Filesystem = blocked, stage.FilesystemOf(ctx, c.Pods, c.log)
	}
	return inv, nil
}

func (c *cycle) observer() node.Observer {
	return node.Observer{
		Files: c.Files, Pods: c.Pods, Images: c.Images, Busy: c.Announcer.Busy, NodeName: c.Policy.NodeName, State: &c.nodes,
	}
}
