// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// preflight checks that kubelet will start the staged digests before anything is stopped. With pull policy Always
// kubelet asks the registry at each start, so each floating tag must name the staged digest. With IfNotPresent kubelet
// starts the local image of that name, so CRI pulls it first.
func (a *attempt) preflight(ctx context.Context) error {
	checked := map[release.Reference]bool{}
	for _, e := range a.step.Apply.Expect {
		if checked[e.Ref] || e.OnNode {
			continue
		}
		checked[e.Ref] = true
		check := a.checkTag
		if e.Bound {
			check = a.checkBound
		}
		if err := check(ctx, e); err != nil {
			return err
		}
		if e.Bound || !a.step.Apply.PullFirst {
			continue
		}
		stop := a.Progress.Heartbeat()
		id, err := a.Pods.Pull(ctx, e.Ref)
		stop()
		switch {
		case err != nil:
			return fmt.Errorf("pull %s: %w", e.Ref, err)
		case e.Config != "" && id != e.Config:
			return a.tagMoved("%s has moved to image id %s", e.Ref, id)
		}
	}
	return nil
}

// checkTag checks that kubelet's pull of a tag gets the staged digest.
func (a *attempt) checkTag(ctx context.Context, e plan.Expectation) error {
	answers := answersPull(a.LocalRegistry, e)
	if answers == localregistry.Gate {
		return nil
	}
	now, err := a.resolve(ctx, e.Ref)
	switch {
	case err != nil && answers != localregistry.Off && !isAnswer(err):
		a.Log.Info("registry does not answer, kubelet pulls from the local registry", "image", e.Ref.String(), "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("%w: registry does not answer: %w", release.ErrHeld, err)
	case now.Digest != e.Digest:
		return a.tagMoved("%s has moved to %s", e.Ref, now.Digest)
	}
	return nil
}

// answersPull returns the position at which the local registry answers kubelet's pull of an image.
func answersPull(own *localregistry.Keeper, e plan.Expectation) localregistry.Position {
	if e.Bound {
		return own.AnswersDigest(release.Pin{Repository: e.Ref.Repository, Digest: e.Digest})
	}
	return own.Answers(e.Ref, e.Digest)
}

// isAnswer reports whether an error shows that a registry is reachable, although it did not resolve the tag: it does
// not have the tag, which is an alarm; it accepts requests and does not respond, as it would to an old containerd; it
// answers with something like a login page, after which containerd asks no other host; it asked to wait; or the budget
// is spent. kubelet's pull may then get anything.
func isAnswer(err error) bool {
	se, is := errors.AsType[*release.SourceError](err)
	return errors.Is(err, release.ErrNotFound) ||
		is && (se.Silent || se.Answered || !se.RetryAt.IsZero() || se.Unasked && se.Host == "")
}

// checkBound checks that kubelet can start an image by its digest: with pull policy Always it
// asks the registry for the digest, with IfNotPresent CRI has to list it.
func (a *attempt) checkBound(ctx context.Context, e plan.Expectation) error {
	if !a.step.Apply.PullFirst {
		answers := answersPull(a.LocalRegistry, e)
		if answers == localregistry.Gate {
			return nil
		}
		if err := a.asks(ctx, e); err != nil && (answers == localregistry.Off || isAnswer(err)) {
			return fmt.Errorf("%w: registry does not answer: %w", release.ErrHeld, err)
		}
		return nil
	}
	pin := release.Pin{Repository: e.Ref.Repository, Digest: e.Digest}
	if err := a.Images.Name(ctx, pin); err != nil {
		return fmt.Errorf("name %s: %w", e.Name, err)
	}
	_, err := a.Stager.AwaitListed(ctx, release.Key(pin.Repository, pin.Digest))
	return err
}

// asks sends the request that kubelet would send.
func (x *Executor) asks(ctx context.Context, e plan.Expectation) error {
	if !e.Bound {
		_, err := x.resolve(ctx, e.Ref)
		return err
	}
	defer x.Progress.Heartbeat()()
	_, err := x.Source.Describe(ctx, e.Ref.Repository, e.Digest)
	return err
}

// tagMoved returns the error for a tag that names another image than the step.
func (a *attempt) tagMoved(format string, args ...any) error {
	a.result.TagMoved = true
	return fmt.Errorf("%w: %s", release.ErrHeld, fmt.Sprintf(format, args...))
}

func (x *Executor) resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	defer x.Progress.Heartbeat()()
	return x.Source.Resolve(ctx, ref)
}

// isStopped reports whether all containers of the step are stopped; one that has done its work is not.
func (a *attempt) isStopped(ctx context.Context) bool {
	containers, err := a.containers(ctx, a.step.Apply)
	return err == nil && !slices.ContainsFunc(a.step.Apply.Expect, func(e plan.Expectation) bool {
		c := node.FindContainer(containers, e.Container)
		return c != nil && (c.Running || a.step.Apply.Once && c.Succeeded())
	})
}
