// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// velumNode is a node with an agent that runs velum 4.0.0-rev1.
type velumNode struct {
	*agenttest.World
	t     *testing.T
	agent *agent.Agent
}

func newVelumNode(t *testing.T) *velumNode {
	t.Helper()
	r := &velumNode{World: agenttest.NewWorld(), t: t}
	r.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision} }
	r.Registry.Release(caasp+"velum", "4.0.0", 1, "1.1")
	r.Node.PutTemplate("velum.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata:\n  name: velum\nspec:\n"+
		"  containers:\n  - name: velum\n    image: "+caasp+"velum:__TAG__\n"))
	r.agent = r.Agent()
	require.Equal(t, status.StateCurrent, r.cycle().State)
	return r
}

func (r *velumNode) cycle() status.Status {
	r.t.Helper()
	s, err := r.agent.Cycle(r.t.Context(), source.PollAll)
	require.NoError(r.t, err)
	return s
}

// offer publishes a revision.
func (r *velumNode) offer() release.Release {
	return r.Registry.Release(caasp+"velum", "4.0.0", 2, "1.2")
}

type unsigned struct{}

func (unsigned) Verify(context.Context, release.Release) (string, error) {
	return "", release.ErrUnsigned
}
func (unsigned) Keys(context.Context) ([]string, error) { return []string{"k"}, nil }

// Pages of what an agent has found, not of what a test has written: both have to mean the same by a kind.
func TestPagesOfAnAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status func(r *velumNode) status.Status
		want   []string
	}{
		"offered": {
			func(r *velumNode) status.Status { r.offer(); return r.cycle() },
			[]string{"What to do:  run image-update-agent apply when"},
		},
		"held": {
			func(r *velumNode) status.Status {
				r.offer()
				r.cycle()
				_, s, err := r.agent.Hold(r.t.Context(), nil, true, record.PersonHold{})
				require.NoError(r.t, err)
				return s
			},
			[]string{"hold: everything (velum.yaml)\n", "What to do:  image-update-agent resume --all\n"},
		},
		"busy": {
			func(r *velumNode) status.Status { r.offer(); r.Grain.SetBusy("update_in_progress"); return r.cycle() },
			[]string{"busy: the grain update_in_progress is true (velum.yaml)\n", "salt-call --local grains.delkey update_in_progress\n"},
		},
		"registry away": {
			func(r *velumNode) status.Status {
				r.Registry.Down(&release.SourceError{
					Repository: caasp + "velum", Host: "m1:5000", Cause: release.CauseRefused, Err: errors.New("connection refused"),
				})
				return r.cycle()
			},
			[]string{
				"did not answer for 1 repository",
				"Not answering:\n  upstream m1:5000: connection refused\n    for      " + caasp + "velum\n",
			},
		},
		"registry away in an apply": {
			func(r *velumNode) status.Status {
				r.offer()
				r.cycle()
				r.Registry.Down(&release.SourceError{
					Repository: caasp + "velum", Host: "m1:5000", Cause: release.CauseRefused, Err: errors.New("connection refused"),
				})
				_, _, err := r.agent.Apply(r.t.Context(), agent.ApplyRequest{Which: plan.All()})
				require.NoError(r.t, err)
				s, err := r.agent.Cycle(r.t.Context(), source.PollNone)
				require.NoError(r.t, err)
				return s
			},
			[]string{
				"waiting for approval: velum.yaml (revision; the apply of 2026-05-01 12:00:00 UTC was held: registry does not answer: ",
				"What to do:  restore the connection to the registry (image-update-agent doctor shows the cause), " +
					"then run image-update-agent apply\n",
			},
		},
		"not signed": {
			func(r *velumNode) status.Status {
				r.Policy.Rule = func(string) policy.Rule {
					return policy.Rule{Updates: tags.Revision, Signatures: policy.SignaturesRequire}
				}
				r.Verifier = unsigned{}
				r.agent = r.Agent()
				r.offer()
				return r.cycle()
			},
			[]string{"a newer release exists but cannot be offered yet", "Not offered yet:\n  signature: velum 4.0.0-rev2-build1.2: not signed"},
		},
		"rolled back": {
			func(r *velumNode) status.Status {
				r.Node.Crash(r.offer().Digest, true)
				r.cycle()
				_, s, err := r.agent.Apply(r.t.Context(), agent.ApplyRequest{Which: plan.All()})
				require.NoError(r.t, err)
				return s
			},
			[]string{"; rolled back to 4.0.0-rev1-build1.1\n", "no hurry: ", "image-update-agent apply --retry velum.yaml; if the image"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newVelumNode(t)
				text := pageOf(t, c.status(r), 0, r.Clock.Now(), false)
				for _, want := range c.want {
					assert.Contains(t, text, want)
				}
			})
		})
	}
}
