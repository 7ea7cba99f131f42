// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/tags"
)

// db adds a second pod, with a revision that is offered.
func (r *velumNode) db() {
	r.Registry.Release(caasp+"mariadb", "10.0", 1, "1.1")
	r.Node.PutTemplate("db.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata:\n  name: db\nspec:\n"+
		"  containers:\n  - name: db\n    image: "+caasp+"mariadb:10.0-rev1\n"))
	r.cycle()
	r.Registry.Release(caasp+"mariadb", "10.0", 2, "1.1")
}

func (r *velumNode) apply(retry bool, names ...string) ([]status.Outcome, status.Status) {
	r.t.Helper()
	out, s, err := r.agent.Apply(r.t.Context(), agent.ApplyRequest{
		Which: plan.Which{Images: names, All: len(names) == 0}, Retry: retry,
	})
	require.NoError(r.t, err)
	return out, s
}

// crash offers a release that crashes, and applies it.
func (r *velumNode) crash() (bad release.Release, s status.Status) {
	bad = r.offer()
	r.Node.Crash(bad.Digest, true)
	r.cycle()
	_, s = r.apply(false, "velum.yaml")
	return bad, s
}

func (r *velumNode) hold(names ...string) status.Status {
	r.t.Helper()
	_, s, err := r.agent.Hold(r.t.Context(), names, len(names) == 0, record.PersonHold{})
	require.NoError(r.t, err)
	return s
}

func (r *velumNode) auto(window bool) {
	r.Policy.Auto = true
	r.Policy.Window = func(now time.Time) (bool, time.Time) { return window, now.Add(time.Hour) }
	r.agent = r.Agent()
}

// advised matches the commands of this program that a page advises to run.
var advised = regexp.MustCompile(`image-update-agent ((?:apply|rollback|resume|check)(?: --[a-z]+| [a-z]+\.yaml| velum| mariadb)*)`)

// commands are those that the page of a status advises: at its head, for each hold, and to undo a rollback.
func commands(t *testing.T, s status.Status) []string {
	t.Helper()
	var out []string
	for _, m := range advised.FindAllStringSubmatch(pageOf(t, s, 100_000, noon, false), -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// run runs an advised command, and returns what refused it.
func (r *velumNode) run(command string) (refused []string) {
	r.t.Helper()
	words := strings.Fields(command)
	retry, all := slices.Contains(words, "--retry"), slices.Contains(words, "--all")
	names := slices.DeleteFunc(words[1:], func(w string) bool { return strings.HasPrefix(w, "--") })
	var out []status.Outcome
	var err error
	switch words[0] {
	case "apply":
		out, _ = r.apply(retry, names...)
	case "rollback":
		out, _, err = r.agent.Rollback(r.t.Context(), plan.Which{Images: names, All: all})
		require.NoError(r.t, err)
	case "resume":
		resumed, _, err := r.agent.Resume(r.t.Context(), names, all)
		require.NoError(r.t, err)
		if len(resumed) == 0 {
			return []string{"no such hold"}
		}
		return nil
	default:
		r.cycle()
		return nil
	}
	done := false
	for _, o := range out {
		done = done || o.Result == status.ResultApplied || o.Result == status.ResultRolledBack
		if o.Result == status.ResultHeld || o.Result == status.ResultFailed {
			refused = append(refused, o.PodManifest+": "+o.Reason)
		}
	}
	if !done {
		refused = append(refused, "nothing done")
	}
	return refused
}

var errAway = &release.SourceError{
	Repository: caasp + "velum", Host: "m1:5000", Cause: release.CauseRefused, Err: errors.New("connection refused"),
}

// situations are what may have happened to a node. Their pages are those of what an agent has found, not of what a test
// has written: both have to mean the same by a kind.
var situations = map[string]struct {
	happens func(r *velumNode) status.Status
	mend    func(r *velumNode) // the cause, where the advice says when it is removed
	want    []string           // commands
	page    []string
}{
	"offered": {
		happens: func(r *velumNode) status.Status { r.offer(); return r.cycle() },
		want:    []string{"apply"},
		page:    []string{"What to do:  run image-update-agent apply when"},
	},
	"held by a person": {
		happens: func(r *velumNode) status.Status { r.offer(); r.cycle(); return r.hold() },
		want:    []string{"resume --all"},
		page:    []string{"hold: everything (velum.yaml)\n", "What to do:  image-update-agent resume --all\n"},
	},
	"busy": {
		happens: func(r *velumNode) status.Status { r.offer(); r.Grain.SetBusy("update_in_progress"); return r.cycle() },
		page: []string{
			"busy: the grain update_in_progress is true (velum.yaml)\n", "salt-call --local grains.delkey update_in_progress\n",
		},
	},
	"not signed": {
		happens: func(r *velumNode) status.Status {
			r.Policy.Rule = func(string) policy.Rule {
				return policy.Rule{Updates: tags.Revision, Signatures: policy.SignaturesRequire}
			}
			r.Verifier = unsigned{}
			r.agent = r.Agent()
			r.offer()
			return r.cycle()
		},
		want: []string{"check"},
		page: []string{
			"a newer release exists but cannot be offered yet", "Not offered yet:\n  signature: velum 4.0.0-rev2-build1.2: not signed",
		},
	},
	"the registry is away": {
		happens: func(r *velumNode) status.Status { r.Registry.Down(errAway); return r.cycle() },
		page: []string{
			"did not answer for 1 repository",
			"Not answering:\n  upstream m1:5000: connection refused\n    for      " + caasp + "velum\n",
		},
	},
	"one of two held": {
		happens: func(r *velumNode) status.Status { r.db(); r.offer(); r.cycle(); return r.hold("velum.yaml") },
		want:    []string{"apply db.yaml", "resume velum"},
	},
	"outside of the window": {
		happens: func(r *velumNode) status.Status { r.auto(false); r.offer(); return r.cycle() },
		want:    []string{"apply"},
	},
	"outside of the window, and held": {
		happens: func(r *velumNode) status.Status { r.auto(false); r.offer(); r.cycle(); return r.hold("velum.yaml") },
		want:    []string{"resume velum"},
	},
	"outside of the window, and busy": {
		happens: func(r *velumNode) status.Status {
			r.auto(false)
			r.offer()
			r.Grain.SetBusy("update_in_progress")
			return r.cycle()
		},
	},
	"a reboot": {
		happens: func(r *velumNode) status.Status {
			r.db()
			r.offer()
			r.Against = []status.Hold{{Name: status.HoldReboot, Reason: "at 12:00"}}
			return r.cycle()
		},
	},
	"the registry is away, and an update waits": {
		happens: func(r *velumNode) status.Status {
			r.db()
			r.offer()
			r.cycle()
			r.Registry.Down(errAway)
			return r.cycle()
		},
	},
	"the registry was away in an apply": {
		happens: func(r *velumNode) status.Status {
			r.offer()
			r.cycle()
			r.Registry.Down(errAway)
			r.apply(false)
			s, err := r.agent.Cycle(r.t.Context(), source.PollNone)
			require.NoError(r.t, err)
			return s
		},
		mend: func(r *velumNode) { r.Registry.Down(nil) },
		want: []string{"apply"},
		page: []string{
			"waiting for approval: velum.yaml (revision; the apply of 2026-05-01 12:00:00 UTC was held: registry does not answer: ",
			"What to do:  restore the connection to the registry (image-update-agent doctor shows the cause), " +
				"then run image-update-agent apply\n",
		},
	},
	"rolled back": {
		happens: func(r *velumNode) status.Status { _, s := r.crash(); return s },
		mend:    (*velumNode).heal,
		want:    []string{"apply --retry velum.yaml"},
		page: []string{
			"; rolled back to 4.0.0-rev1-build1.1\n", "no hurry: ", "image-update-agent apply --retry velum.yaml; if the image",
		},
	},
	"rolled back, and another one waits": {
		happens: func(r *velumNode) status.Status { r.db(); _, s := r.crash(); return s },
		mend:    (*velumNode).heal,
		want:    []string{"apply --retry velum.yaml", "apply db.yaml"},
	},
	"rolled back, and held": {
		happens: func(r *velumNode) status.Status { r.crash(); return r.hold("velum.yaml") },
		want:    []string{"resume velum"},
	},
	"rolled back, and gone from the registry": {
		happens: func(r *velumNode) status.Status {
			bad, _ := r.crash()
			for _, tag := range []string{"4.0.0", bad.Tag, bad.Long} {
				r.Registry.Retract(caasp+"velum", tag)
			}
			r.Registry.Vanish(caasp+"velum", bad.Digest)
			r.Clock.Add(48 * time.Hour)
			return r.cycle()
		},
	},
	"a denied release is running": {
		happens: func(r *velumNode) status.Status {
			r.offer()
			r.cycle()
			r.apply(false)
			running, err := r.Registry.Resolve(r.t.Context(), release.Reference{Repository: caasp + "velum", Tag: "4.0.0-rev2"})
			require.NoError(r.t, err)
			r.Node.Crash(running.Digest, true)
			return r.cycle()
		},
	},
	"the agent's own failure": {
		happens: func(r *velumNode) status.Status {
			r.db()
			r.offer()
			r.cycle()
			r.Node.OnAside = func(string) error { return errors.New("read-only file system") }
			_, s := r.apply(false, "velum.yaml")
			return s
		},
		mend: func(r *velumNode) { r.Node.OnAside = nil },
		want: []string{"apply db.yaml", "check"},
	},
	"the agent's own failure, checked": {
		happens: func(r *velumNode) status.Status {
			r.offer()
			r.cycle()
			r.Node.OnAside = func(string) error { return errors.New("read-only file system") }
			r.apply(false, "velum.yaml")
			r.Node.OnAside = nil
			return r.cycle()
		},
		want: []string{"apply"},
	},
	"a broken pod manifest, and an update": {
		happens: func(r *velumNode) status.Status {
			r.db()
			r.offer()
			r.cycle()
			r.Node.PutBroken("velum.yaml", errors.New("line 3: not YAML"))
			return r.cycle()
		},
		want: []string{"apply db.yaml"},
	},
	"rolled back by hand": {
		happens: func(r *velumNode) status.Status {
			r.offer()
			r.cycle()
			r.apply(false)
			_, s, err := r.agent.Rollback(r.t.Context(), plan.Which{All: true})
			require.NoError(r.t, err)
			return s
		},
		want: []string{"apply --retry velum.yaml"},
	},
	"rolled back by hand, and held": {
		happens: func(r *velumNode) status.Status {
			r.offer()
			r.cycle()
			r.apply(false)
			_, _, err := r.agent.Rollback(r.t.Context(), plan.Which{All: true})
			require.NoError(r.t, err)
			return r.hold("velum.yaml")
		},
		want: []string{"resume velum"},
	},
	"not asked yet": {
		happens: func(r *velumNode) status.Status {
			r.db()
			s, err := r.Agent().Cycle(r.t.Context(), source.PollNone)
			require.NoError(r.t, err)
			return s
		},
	},
}

// What a page advises to run works, now: each command of each situation is run, and nothing refuses it.
func TestAdviceWorks(t *testing.T) {
	t.Parallel()
	for name, c := range situations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				first := newVelumNode(t)
				s := c.happens(first)
				for _, want := range c.page {
					assert.Contains(t, pageOf(t, s, 0, first.Clock.Now(), false), want)
				}
				got := commands(t, s)
				assert.Equal(t, append([]string(nil), c.want...), got)
				for _, command := range got {
					r := newVelumNode(t)
					c.happens(r)
					if c.mend != nil {
						c.mend(r)
					}
					assert.Empty(t, r.run(command), command)
				}
			})
		})
	}
}

// A release that runs and is denied here: what is advised is what nothing refuses.
func TestAdviceOfADeniedRelease(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		pod  status.PodStatus
		want string
	}{
		"can be rolled back": {
			status.PodStatus{CanRollBack: true},
			"roll it back (image-update-agent rollback velum.yaml), or allow it (image-update-agent apply --retry velum.yaml)",
		},
		"cannot": {status.PodStatus{}, "allow it (image-update-agent apply --retry velum.yaml)"},
		"is held for a person": {
			status.PodStatus{CanRollBack: true, Holds: []status.Hold{{Name: status.HoldRequested}}},
			"see the remedy for each hold below",
		},
	} {
		c.pod.PodManifest = "velum.yaml"
		s := status.Status{
			Reasons:      []status.Reason{{Kind: status.KindDenied, PodManifest: "velum.yaml"}, {Kind: status.KindLooksNewer}},
			PodManifests: []status.PodStatus{{PodManifest: "etcd.yaml", CanRollBack: true}, c.pod},
		}
		assert.Equal(t, c.want, deniedAdvice(s), title)
	}
}

// heal ends what made the newest release crash.
func (r *velumNode) heal() {
	d, err := r.Registry.Resolve(r.t.Context(), release.Reference{Repository: caasp + "velum", Tag: "4.0.0-rev2"})
	require.NoError(r.t, err)
	r.Node.Crash(d.Digest, false)
}

// Before the first question, the page says that, and not that the registry does not answer.
func TestAQuestionThatWasNotAskedIsNotUnanswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newVelumNode(t)
		r.Disk.Lose()
		s, err := r.Agent().Cycle(t.Context(), source.PollNone)
		require.NoError(t, err)
		text := pageOf(t, s, 0, r.Clock.Now(), false)
		assert.Contains(t, text, "not asked yet")
		assert.NotContains(t, text, "does not answer")
		assert.Contains(t, text, "or check now: image-update-agent check")
	})
}

// A pod whose manifest is set aside is gone, whatever the last status says.
func TestWithoutADaemonAPodMayBeGone(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, Status(terminal.NewPage(&out, noon), status.Status{State: status.StateApplying}, true, "velum.yaml"))
	assert.Contains(t, out.String(), "velum.yaml is set aside. Bring it back: image-update-agent put-back;")
}

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
