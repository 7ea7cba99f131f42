// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/stage"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// maxRounds limits how often a cycle runs steps and decides again.
const maxRounds = 3

// Cycle observes the node, asks the source, decides and runs the steps. It returns the status afterwards. Its error is
// about the cycle itself (the node cannot be observed, the record cannot be saved); the status has the errors of images
// and pods. After an interruption by a person the caller repeats the cycle.
func (a *Agent) Cycle(ctx context.Context, poll source.Poll) (status.Status, error) {
	d, err := a.cycle(ctx, &Request{poll: poll})
	return d.status, err
}

// cycleResult is the result of a cycle.
type cycleResult struct {
	status     status.Status
	reported   bool // false: the cycle was interrupted
	results    results
	unfinished *interruptedError // the interrupted work; nil: none
}

// cycle is a running cycle: what it runs for, its dependencies, its observations and its results.
type cycle struct {
	agent    *Agent   // the ports, the policy, and state kept between cycles
	request  *Request // for which it runs
	needs    []string // releases (repository@digest) that an urgent request has staged
	log      *slog.Logger
	progress *status.Reporter
	asker    *source.Asker
	signs    *stage.SignatureChecker
	stager   *stage.Stager
	executor *apply.Executor
	lock     *fleet.Keeper
	steps    []plan.Step // of the running plan
	restarts int         // of the plan, that have begun
	// allRestarts are the restarts of the plan.
	allRestarts int
	results     results
	observed    node.Inventory   // the last observation
	setErrs     map[string]error // why sets did not begin, by name
}

// cycle runs a cycle for a request. A poll stages all releases, an urgent request only those that it needs.
func (a *Agent) cycle(ctx context.Context, r *Request, needs ...string) (cycleResult, error) {
	c, err := a.begin(ctx, r)
	if err != nil {
		return c.unobserved(ctx, err)
	}
	c.needs = needs
	if !r.urgent {
		a.space.ClearFailures(r.poll != source.PollNone)
	}
	inv, err := c.restoreAndObserve(ctx)
	if err != nil {
		return c.unobserved(ctx, err)
	}
	if len(a.records.Record.Approved) == 0 { // otherwise the plan says which pods are approved
		c.keepTable(ctx, inv, nil)
	}
	if r.poll == source.PollAll {
		a.tryAgain()
		a.records.Record.PassFailures()
	}
	offers, err := c.ask(ctx, inv)
	if err != nil { // a person's request interrupted the poll
		a.records.TrySave(ctx, "")
		return cycleResult{}, err
	}
	plan := c.decideSets(ctx, inv, offers)
	final := context.WithoutCancel(ctx) // report even after cancellation
	limit := maxRounds
	for again := len(plan.Steps) > 0; again && limit > 0; limit-- {
		failed, err := c.runSteps(ctx, plan.Steps)
		if err != nil { // a person's request interrupted the steps
			a.records.TrySave(final, "")
			return cycleResult{}, err
		}
		if inv, err = c.restoreAndObserve(final); err != nil {
			return c.unobserved(final, err)
		}
		offers = c.currentOffers(inv, offers)
		plan = c.decideSets(final, inv, offers)
		again = ctx.Err() == nil && (failed || slices.ContainsFunc(plan.Steps, c.isRunnableNext))
		if failed && limit < maxRounds+len(plan.Pods) {
			limit++ // a rollback does not count as a round
		}
	}
	if ctx.Err() == nil {
		c.endRequests(inv, plan)
	}
	return c.report(final, inv, offers, plan)
}

// tryAgain asks again the hosts that wait: a person waits, and may know that the registry is back.
func (a *Agent) tryAgain() {
	if a.Pacer != nil {
		a.Pacer.TryAgain()
	}
}

// isRunnableNext reports whether a new step still runs in this cycle: the offer of a rolled back pod is staged, and
// mode auto applies the releases that were just staged.
func (c *cycle) isRunnableNext(s plan.Step) bool {
	switch {
	case s.Do == plan.StepDrop:
		return true
	case s.Lost:
		return false
	case c.results.err(s.Key()) != nil || c.results.unstagedNeed(s) != "":
		return false
	case (s.Do == plan.StepStage || s.Do == plan.StepApply) && c.results.isDeferred(s.Key()):
		return false
	case s.Do == plan.StepApply:
		return s.Apply.Auto && !c.results.isApplied(s.File)
	case s.Do == plan.StepVerify:
		return c.results.isApplied(s.File) // after an interrupted apply
	}
	return s.Do == plan.StepStage || s.Do == plan.StepKeep || s.Do == plan.StepWrite
}

// ask asks the source and verifies signatures. A person's request interrupts it; the answers
// are kept for the next cycle.
func (c *cycle) ask(ctx context.Context, inv node.Inventory) (map[release.Question]source.Offer, error) {
	round, qs := c.round(inv)
	if c.request.urgent {
		return c.asker.Ask(ctx, round, qs, true), nil
	}
	ctx, end := c.agent.queue.interruptible(ctx)
	defer end()
	if c.request.poll != source.PollNone {
		round.Resume(c.agent.unfinished)
		c.agent.unfinished = nil
	}
	offers := c.asker.Ask(ctx, round, qs, true)
	if intr := c.interruption(ctx, "poll", c.request.poll); intr != nil {
		if c.request.poll != source.PollNone {
			c.agent.unfinished = round
		}
		return nil, intr
	}
	c.signs.VerifyAgain(ctx, c.request.poll == source.PollAll)
	return offers, c.interruption(ctx, "poll", source.PollNone)
}

// round returns a new round and its questions.
func (c *cycle) round(inv node.Inventory) (*source.Round, []release.Question) {
	views := follow.ReadPods(inv, c.agent.records.Record, c.agent.Policy)
	held, _ := inv.Digests()
	return c.asker.NewRound(c.request.poll, held, follow.Running(inv, views)), follow.Questions(views, c.agent.Policy)
}

// currentOffers returns the offers for the followed tags after the steps, which may have changed the tags.
func (c *cycle) currentOffers(
	inv node.Inventory, asked map[release.Question]source.Offer,
) map[release.Question]source.Offer {
	out := map[release.Question]source.Offer{}
	for _, q := range follow.Questions(follow.ReadPods(inv, c.agent.records.Record, c.agent.Policy), c.agent.Policy) {
		o, ok := asked[q]
		if !ok {
			o = source.LastOffer(&c.agent.records.Record, q, release.ErrNotAsked)
		}
		out[q] = o
	}
	return out
}

// decide makes the plan. It asks kubelet and the preconditions only if needed, because the questions may start services
// on demand.
func (c *cycle) decide(ctx context.Context, inv node.Inventory, offers map[release.Question]source.Offer) plan.Plan {
	inv.Catalog = c.listing(ctx) // the poll may have read a newer one
	decide := func() plan.Plan {
		return plan.Decide(inv, offers, c.agent.records.Record, c.agent.Policy, c.agent.Now())
	}
	pl := decide()
	if c.agent.Readiness != nil && pl.IsDown() {
		var err error
		if inv.Unstarted, err = c.agent.Readiness.Waiting(ctx); err != nil {
			c.log.Debug("kubelet does not report why containers wait", "err", err)
		}
		pl = decide()
	}
	hasChange := func(p plan.PodPlan) bool { return p.Change != "" }
	if c.agent.Preconditions != nil && slices.ContainsFunc(pl.Pods, hasChange) {
		if inv.RestartHolds = c.agent.Preconditions.Holds(ctx); len(inv.RestartHolds) > 0 {
			pl = decide()
		}
	}
	return pl
}

// Plan returns what the next cycle would do, after asking the source as poll says. It changes
// nothing.
func (a *Agent) Plan(ctx context.Context, poll source.Poll) (plan.Plan, error) {
	c, err := a.begin(ctx, &Request{poll: poll})
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
	if err := c.executor.PutBack(ctx); err != nil {
		return node.Inventory{}, err
	}
	begun := time.Now()
	inv, err := c.observe(ctx)
	if err == nil {
		c.agent.watched.Observed(inv.Containers, begun)
		c.restoreRecord(inv)
		c.restoreTags(ctx, &inv)
	}
	return inv, err
}

// restoreRecord tells a node that has lost its record from a new one, and restores what its files show.
func (c *cycle) restoreRecord(inv node.Inventory) {
	rec := &c.agent.records.Record
	if !rec.New {
		return
	}
	lost := ""
	if _, pins := inv.Digests(); len(pins) > 0 {
		lost = "containerd has images that the agent has pinned"
	}
	if rec.Begin(lost, c.agent.Now()) {
		follow.RestoreWritten(inv, rec, c.agent.Policy, c.agent.Now())
		c.log.Error("the record was lost", "reason", rec.Lost.Reason, "confirm", "image-update-agent resume --all")
	}
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
	if err := observer.ObserveRuntime(ctx, &inv); err != nil {
		return inv, err
	}
	if blocked := c.agent.space.Blocked(); len(blocked) > 0 {
		inv.BlockedBySpace, inv.Filesystem = blocked, stage.FilesystemOf(ctx, c.agent.Pods, c.log)
	}
	c.agent.LocalRegistry.Probe(ctx)
	inv.Gated = c.agent.LocalRegistry.Gated()
	c.observed = inv
	return inv, nil
}

// listing returns the last verified listing of the catalog.
func (c *cycle) listing(ctx context.Context) catalog.Listing {
	if c.agent.Catalog == nil {
		return catalog.Listing{}
	}
	return c.agent.Catalog.Last(ctx).WithWithdrawnSets()
}

func (c *cycle) observer() node.Observer {
	a := c.agent
	return node.Observer{
		Files: a.Files, Pods: a.Pods, Images: a.Images, Busy: a.Announcer.Busy, NodeName: a.Policy.NodeName, State: &a.nodes,
	}
}

// restoreTags restores tags of pod manifests whose image records are broken: the tag names the running release again,
// or the last known good one. A container that starts from a broken record fails even without a pull. The failed pull
// of kubelet counts as a failure of the repository's source, which is retried soon.
func (c *cycle) restoreTags(ctx context.Context, inv *node.Inventory) {
	rec := c.agent.records.Record
	broken := follow.BrokenTags(*inv, follow.ReadPods(*inv, rec, c.agent.Policy), rec)
	for _, tag := range broken {
		err := release.ErrNotFound
		if tag.Digest != "" {
			err = c.agent.Images.Restore(ctx, tag.Record, tag.Digest)
		}
		if errors.Is(err, release.ErrConflict) {
			continue // kubelet has pulled it again
		}
		text := fmt.Sprintf("names %s again", tag.Digest)
		if err != nil {
			text = fmt.Sprintf("names no image until the next pull: %v", err)
			c.log.Error("tag names no image", "tag", tag.Record.Name, "type", tag.Record.NotImage, "err", err)
		} else {
			c.log.Warn("tag named no image, restored", "tag", tag.Record.Name, "type", tag.Record.NotImage, "digest", tag.Digest)
		}
		c.asker.NotePage(tag.Repository, fmt.Errorf("kubelet pulled %s and got %s, from a login page or another server; "+
			"the tag %s",
			tag.Record.Name, tag.Record.NotImage, text))
	}
	if len(broken) == 0 {
		return
	}
	if held, err := c.agent.Images.Held(ctx); err == nil {
		inv.Held = held
	}
}
