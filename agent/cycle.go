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

// maxRounds bounds how often a cycle runs steps and decides again.
const maxRounds = 3

// Cycle observes the node, asks the source, decides and runs the steps. It returns the status
// afterwards. Its error is of the cycle itself (the node cannot be observed, the record not be
// saved); errors of images and pods stand in the status. After an interruption by a person the
// caller repeats the cycle.
func (a *Agent) Cycle(ctx context.Context, poll source.Poll) (status.Status, error) {
	d, err := a.cycle(ctx, purpose{poll: poll})
	return d.status, err
}

// purpose is what a cycle is for.
type purpose struct {
	poll   source.Poll
	person bool     // a person waits for it: stage only needs
	needs  []string // releases (repository@digest) to stage
}

// cycleResult is the result of a cycle.
type cycleResult struct {
	status     status.Status
	reported   bool // false: the cycle was interrupted
	results    results
	unfinished *interruptedError // the interrupted rest; nil: none
}

// cycle is a running cycle.
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
	observed  node.Inventory // the last observation
}

func (a *Agent) cycle(ctx context.Context, p purpose) (cycleResult, error) {
	c, err := a.begin(ctx, p)
	if err != nil {
		return reporter{c}.unobserved(ctx, err)
	}
	if !p.person {
		a.space.ClearFailures()
	}
	inv, err := c.restoreAndObserve(ctx)
	if err != nil {
		return reporter{c}.unobserved(ctx, err)
	}
	if len(c.records.Record.Approved) == 0 { // else the plan says what is approved
		ownTable{c}.keep(ctx, inv, nil)
	}
	offers, err := c.ask(ctx, inv)
	if err != nil { // a person's request interrupted the poll
		c.records.TrySave(ctx, "")
		return cycleResult{}, err
	}
	plan := c.decide(ctx, inv, offers)
	final := context.WithoutCancel(ctx) // report even after cancellation
	limit := maxRounds
	for again := len(plan.Steps) > 0; again && limit > 0; limit-- {
		failed, err := stepRunner{c}.runSteps(ctx, plan.Steps)
		if err != nil { // a person's request interrupted the steps
			c.records.TrySave(final, "")
			return cycleResult{}, err
		}
		if inv, err = c.restoreAndObserve(final); err != nil {
			return reporter{c}.unobserved(final, err)
		}
		offers = c.currentOffers(inv, offers)
		plan = c.decide(final, inv, offers)
		again = ctx.Err() == nil && (failed || slices.ContainsFunc(plan.Steps, c.isRunnableNext))
		if failed && limit < maxRounds+len(plan.Pods) {
			limit++ // a rollback does not count as a round
		}
	}
	return reporter{c}.report(final, inv, offers, plan)
}

// isRunnableNext reports whether a new step runs in this cycle still: a rolled back pod gets
// its offer staged, and mode auto applies what was just staged.
func (c *cycle) isRunnableNext(s plan.Step) bool {
	switch {
	case s.Do == plan.StepDrop:
		return true
	case c.results.err(s.Key()) != nil || c.results.unstagedNeed(s) != "":
		return false
	case (s.Do == plan.StepStage || s.Do == plan.StepApply) && c.results.isDeferred(s.Key()):
		return false
	case s.Do == plan.StepApply:
		return s.Apply.Auto && !c.results.isApplied(s.File)
	case s.Do == plan.StepProve:
		return c.results.isApplied(s.File) // after an interrupted apply
	}
	return s.Do == plan.StepStage || s.Do == plan.StepKeep || s.Do == plan.StepWrite
}

// ask asks the source and verifies signatures. A person's request interrupts it; the answers
// are kept for the next cycle.
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
	return offers, c.interruption(ctx, "poll", source.PollNone)
}

// round returns a new round and its questions.
func (c *cycle) round(inv node.Inventory) (*source.Round, []release.Question) {
	views := follow.ReadPods(inv, c.records.Record, c.Policy)
	held, _ := inv.Digests()
	return c.asker.NewRound(c.poll, held, follow.Running(inv, views)), follow.Questions(views, c.Policy)
}

// currentOffers returns the offers for the tags that are followed after the steps, which may
// have changed.
func (c *cycle) currentOffers(
	inv node.Inventory, asked map[release.Question]source.Offer,
) map[release.Question]source.Offer {
	out := map[release.Question]source.Offer{}
	for _, q := range follow.Questions(follow.ReadPods(inv, c.records.Record, c.Policy), c.Policy) {
		o, ok := asked[q]
		if !ok {
			o = source.LastOffer(&c.records.Record, q, release.ErrNotAsked)
		}
		out[q] = o
	}
	return out
}

// decide plans. It asks kubelet and the preconditions only if needed: the questions may start
// services on demand.
func (c *cycle) decide(ctx context.Context, inv node.Inventory, offers map[release.Question]source.Offer) plan.Plan {
	inv.Catalog = c.listing(ctx) // the poll may have read a newer one
	decide := func() plan.Plan { return plan.Decide(inv, offers, c.records.Record, c.Policy, c.Now()) }
	pl := decide()
	if c.Readiness != nil && pl.IsDown() {
		var err error
		if inv.Unstarted, err = c.Readiness.Waiting(ctx); err != nil {
			c.log.Debug("kubelet does not say why containers wait", "err", err)
		}
		pl = decide()
	}
	hasChange := func(p plan.PodPlan) bool { return p.Change != "" }
	if c.Preconditions != nil && slices.ContainsFunc(pl.Pods, hasChange) {
		if inv.RestartHolds = c.Preconditions.Holds(ctx); len(inv.RestartHolds) > 0 {
			pl = decide()
		}
	}
	return pl
}

// Plan returns what the next cycle would do, after asking the source as poll says. It changes
// nothing.
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

// restoreAndObserve restores pod manifests that were set aside, observes the node, and restores tags without an image.
func (c *cycle) restoreAndObserve(ctx context.Context) (node.Inventory, error) {
	if err := c.restarter.PutBack(ctx); err != nil {
		return node.Inventory{}, err
	}
	inv, err := c.observe(ctx)
	if err == nil {
		c.restoreTags(ctx, &inv)
	}
	return inv, err
}

// observe observes the node.
func (c *cycle) observe(ctx context.Context) (node.Inventory, error) {
	observer := c.observer()
	inv, err := observer.ObserveFiles(ctx)
	if err != nil {
		return inv, err
	}
	inv.Catalog = c.listing(ctx)
	defer c.progress.Heartbeat()()
	c.watched.Forget()
	if err := observer.ObserveRuntime(ctx, &inv); err != nil {
		return inv, err
	}
	if blocked := c.space.Blocked(); len(blocked) > 0 {
		inv.BlockedBySpace, inv.Filesystem = blocked, stage.FilesystemOf(ctx, c.Pods, c.log)
	}
	c.OwnHost.Probe(ctx)
	inv.Gated = c.OwnHost.Gated()
	c.observed = inv
	return inv, nil
}

// listing returns the last verified listing of the catalog.
func (c *cycle) listing(ctx context.Context) release.Listing {
	if c.Catalog == nil {
		return release.Listing{}
	}
	return c.Catalog.Last(ctx)
}

func (c *cycle) observer() node.Observer {
	return node.Observer{
		Files: c.Files, Pods: c.Pods, Images: c.Images, Busy: c.Announcer.Busy, NodeName: c.Policy.NodeName, State: &c.nodes,
	}
}
