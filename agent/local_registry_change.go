// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// ErrNothingToDo is returned for a request that changes nothing.
var ErrNothingToDo = errors.New("nothing to do")

// EnableLocalRegistry adds the local registry of the node to the hosts of a registry, and returns the status; or
// ErrNothingToDo if it is there already.
func (l *Loop) EnableLocalRegistry(ctx context.Context, registry string, gate bool) (status.Status, error) {
	at := localregistry.Fallback
	if gate {
		at = localregistry.Gate
	}
	return l.changeLocalRegistry(ctx, "enable", func(ctx context.Context, f localregistry.Files) (bool, error) {
		return f.Enable(ctx, registry, at)
	})
}

// DisableLocalRegistry removes the local registry from those hosts, and returns the status; or ErrNothingToDo if it is
// not there.
func (l *Loop) DisableLocalRegistry(ctx context.Context, registry string) (status.Status, error) {
	return l.changeLocalRegistry(ctx, "disable", func(ctx context.Context, f localregistry.Files) (bool, error) {
		return f.Disable(ctx, registry)
	})
}

// changeLocalRegistry runs a person's request on the loop, so that no apply finds other hosts than it began with.
func (l *Loop) changeLocalRegistry(
	ctx context.Context, verb string, change func(context.Context, localregistry.Files) (bool, error),
) (status.Status, error) {
	changed := false // by a run that another person has interrupted
	err := l.person(ctx, verb, doing{}, nil, nil, func(ctx context.Context) (d cycleResult, err error) {
		own := l.agent.LocalRegistry
		if own == nil || own.Files == nil {
			return d, ErrNothingToDo
		}
		if !changed {
			if changed, err = change(ctx, own.Files); err == nil && !changed {
				err = ErrNothingToDo
			}
		}
		d, errCycle := l.agent.cycle(ctx, l.shared(), purpose{person: true})
		return d, errors.Join(err, errCycle)
	})
	return l.Status(), err
}
