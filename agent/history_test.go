// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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

// historySteps is the length of each random history; with rapid's 100 histories that makes some 4,000 steps.
const historySteps = 40

// history is a node with random events in any order.
type history struct {
	*agenttest.World
	t        *rapid.T
	agent    *agent.Agent
	revs     map[string]int // newest revision by repository
	builds   map[string]int
	staging  bool // fails
	last     status.Status
	mayStart map[string]bool // pod manifests whose pods may restart now
	rule     policy.Rule
	signer   *agenttest.Verifier
	crashed  []digest.Digest
	died     bool // during a step, which then continues

	published []release.Release
	fills     bool                     // pulls fill the disk
	named     map[string]digest.Digest // names set by other clients
	collected bool                     // kubelet may have removed names
	tableFull bool                     // the table of the local registry cannot be saved
	booting   bool
	lost      bool // the record was lost, and with it the author of db.yaml
	lostLock  bool // and that the node may hold the fleet lock
}

// TestHistories applies random events to a node and asserts the invariants after each.
func TestHistories(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var steps atomic.Int64
		rapid.Check(inBubble{t}, func(t *rapid.T) {
			h := newHistory(t)
			ops := h.ops()
			for range historySteps {
				op := rapid.SampledFrom(ops).Draw(t, "op")
				if op.name != "nothing" {
					t.Log(op.name)
					op.do()
					h.Node.Sync() // kubelet retries pods that it could not start
					h.Clock.Add(time.Second)
					steps.Add(1)
				}
			}
			h.settle()
		})
		t.Logf("%d steps", steps.Load())
	})
}

type op struct {
	name string
	do   func()
}

func (o op) String() string { return o.name }

func newHistory(t *rapid.T) *history {
	h := &history{
		World: agenttest.NewWorld(), t: t, revs: map[string]int{}, builds: map[string]int{}, mayStart: map[string]bool{},
		named: map[string]digest.Digest{},
	}
	h.signer = agenttest.NewVerifier("ours")
	h.Verifier = h.signer
	h.Policy.ApplyTimeout = time.Millisecond // the fake kubelet starts pods at once
	h.Policy.PullPolicy = rapid.SampledFrom([]string{"Always", "IfNotPresent"}).Draw(t, "pull policy")
	h.obey(policy.Rule{Updates: tags.Revision})
	h.useLocalRegistry()
	h.pruning()
	h.locks()
	h.Node.Filled = h.filled
	h.Node.OnStage = func(context.Context, release.Release) error {
		if h.staging {
			return errors.New("no space left on device")
		}
		return nil
	}
	for _, repository := range []string{velum, mariadb, etcd} {
		h.revs[repository] = 1
		h.rebuild(repository)
	}
	h.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":4.0.0", "init:setup="+velum+":__TAG__"))
	h.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":4.0.0-rev1"))
	h.Node.PutPodManifest("etcd.yaml", podYAML("etcd", "etcd="+etcd+":4.0.0"))
	h.agent = h.Agent()
	return h
}

func (h *history) ops() []op {
	repository := func() string { return rapid.SampledFrom([]string{velum, mariadb, etcd}).Draw(h.t, "repository") }
	file := func() string {
		return rapid.SampledFrom([]string{"velum.yaml", "db.yaml", "etcd.yaml"}).Draw(h.t, "file")
	}
	flag := func() bool { return rapid.Bool().Draw(h.t, "flag") }
	down := map[bool]error{true: agenttest.ErrRefused}
	return append([]op{
		{"nothing", func() {}}, // rapid replaces steps that do not matter with this one
		{"rebuild", func() { h.rebuild(repository()) }},
		{"revision", func() { r := repository(); h.revs[r]++; h.rebuild(r) }},
		{"patch", func() { h.published = append(h.published, h.Registry.Release(repository(), "4.0.1", 1, "1.1")) }},
		{"retract", func() { r := repository(); h.Registry.Retract(r, fmt.Sprintf("4.0.0-rev%d", h.revs[r])) }},
		{"move back", func() { h.moveBack(repository()) }},
		{"hold", func() { h.hold(flag()) }},
		{"resume", func() { h.resume() }},
		{"rules", h.rules},
		{"rules", h.rules},
		{"signatures are mended", h.mendSignatures},
		{"crash loop", h.crashLoop},
		{"registry", func() { h.Registry.Down(down[flag()]) }},
		{"lists", func() { h.Registry.DownLists(down[flag()]) }},
		{"staging", func() { h.staging = flag() }},
		{"busy", func() { h.Grain.SetBusy(map[bool]string{true: "busy"}[flag()]) }},
		{"hour", func() { h.Clock.Add(time.Duration(rapid.IntRange(-2, 30).Draw(h.t, "hours")) * time.Hour) }},
		{"collect", func() { h.Node.Collect(); h.collected = true }},
		{"forget dead", h.Node.Forget},
		{"crash", func() { h.Node.Restart(file(), "db"); h.Node.Restart("velum.yaml", "velum") }},
		{"comment in a file", func() { h.edit(file(), "# a comment\n") }},
		{"edit a file", func() { h.edit(file(), "  hostNetwork: true\n") }},
		{"delete a file", func() { h.Node.PutPodManifest(file(), nil) }},
		{"template", func() { h.template(flag()) }},
		{"no template", func() { h.Node.PutTemplate("db.yaml", nil) }},
		{"kill", func() { h.agent = h.Agent() }},
		{"reboot", h.reboot},
		{"lose the record", h.loseRecord},
		{"look", func() { h.cycle(source.PollNone) }},
		{"poll", func() { h.cycle(source.PollDue) }},
		{"retry", func() { h.cycle(source.PollFailed) }},
		{"check", func() { h.cycle(source.PollAll) }},
		{"check again", func() { h.cycle(source.PollAll) }},
		{"apply", func() { h.apply(h.t.Context()) }},
		{"apply one", func() { h.apply(h.t.Context(), file()) }},
		{"apply and die", h.applyAndDie},
		{"apply again", func() { h.retry() }},
		{"rollback", func() { h.rollback() }},
		{"auto", func() { h.Policy.Auto = flag(); h.agent = h.Agent() }},
	}, slices.Concat(h.lockOps(), h.spaceOps(), h.localRegistryOps())...)
}

func (h *history) rebuild(repository string) {
	h.builds[repository]++
	r := h.Registry.Release(repository, "4.0.0", h.revs[repository], fmt.Sprintf("1.%d", h.builds[repository]))
	h.published = append(h.published, r)
	h.signer.Sign(r.Digest, rapid.SampledFrom([]string{"ours", "ours", "another"}).Draw(h.t, "signed by"))
}

// limits returns no maximum, twice, and some that may be below the running release.
func (h *history) limits() []tags.Tag {
	out := []tags.Tag{{}, {}}
	for _, text := range []string{"3.9", "4.0.0-rev1", "4.0.0-rev2", "4.0"} {
		limit, err := tags.Parse(text)
		require.NoError(h.t, err)
		out = append(out, limit)
	}
	return out
}

// mendSignatures signs all published releases correctly.
func (h *history) mendSignatures() {
	for _, r := range h.published {
		h.signer.Sign(r.Digest, "ours")
	}
}

// moveBack moves the newest floating tag to an earlier build.
func (h *history) moveBack(repository string) {
	tag := fmt.Sprintf("4.0.0-rev%d", h.revs[repository])
	long := fmt.Sprintf("%s-build1.%d", tag, max(h.builds[repository]-1, 1))
	if r, err := h.Registry.Resolve(h.t.Context(), release.Reference{Repository: repository, Tag: long}); err == nil {
		h.Registry.Tag(repository, tag, r.Digest)
	}
}

// rules restarts the agent with another configuration.
func (h *history) rules() {
	repository := rapid.SampledFrom([]string{velum, mariadb}).Draw(h.t, "repository")
	tag := fmt.Sprintf("4.0.0-rev%d", h.revs[repository])
	now, err := h.Registry.Resolve(h.t.Context(), release.Reference{Repository: repository, Tag: tag})
	denied := []string{tag, tag + "-build*", "4.0.0", "4.0.1*", "*"}
	if err == nil {
		denied = append(denied, now.Digest.String(), now.Digest.String())
	}
	h.Policy.StageDelay = time.Duration(rapid.IntRange(0, 2).Draw(h.t, "stage delay")) * time.Hour
	h.Policy.ConfirmAfter = time.Duration(rapid.IntRange(0, 1).Draw(h.t, "confirm after"))
	h.obey(policy.Rule{
		Updates: rapid.SampledFrom([]tags.Change{tags.Same, tags.Rebuild, tags.Revision, tags.Major}).Draw(h.t, "updates"),
		Deny:    rapid.SliceOfN(rapid.SampledFrom(denied), 0, 2).Draw(h.t, "deny"),
		Allow:   rapid.SampledFrom([][]string{nil, nil, {"4.0.0-rev*"}}).Draw(h.t, "allow"),
		Older:   rapid.Bool().Draw(h.t, "older"),
		Hold:    rapid.SampledFrom([]string{"", "", "configured"}).Draw(h.t, "hold"),
		Max:     rapid.SampledFrom(h.limits()).Draw(h.t, "max"),
		Signatures: rapid.SampledFrom([]policy.Signatures{
			policy.SignaturesOff, policy.SignaturesOff, policy.SignaturesWarn, policy.SignaturesRequire,
		}).Draw(h.t, "signatures"),
	})
	h.agent = h.Agent()
}

func (h *history) obey(r policy.Rule) {
	h.rule = r
	h.Policy.Rule = func(string) policy.Rule { return r }
}

// crashLoop makes the running releases crash repeatedly, or stop crashing.
func (h *history) crashLoop() {
	if c, ok := h.Node.Container("velum.yaml", "velum"); ok {
		h.Node.Crash(c.Digests[0], rapid.Bool().Draw(h.t, "crashes"))
		h.crashed = append(h.crashed, c.Digests[0])
	}
}

func (h *history) hold(all bool) {
	names := map[bool][]string{false: {velum}}[all]
	h.last = status.Status{} // its remaining work follows in the next cycle
	_, _, err := h.agent.Hold(h.t.Context(), names, all, record.PersonHold{Reason: "wait"})
	if err != nil {
		require.ErrorIs(h.t, err, plan.ErrUnknownImage)
		return
	}
	h.invariants(h.shown())
}

func (h *history) resume() {
	h.last = status.Status{}
	_, _, err := h.agent.Resume(h.t.Context(), nil, true)
	require.NoError(h.t, err)
	h.invariants(h.shown())
}

func (h *history) edit(file, text string) {
	if was := h.Node.PodManifest(file); was != "" && !strings.Contains(was, text) {
		h.Node.PutPodManifest(file, []byte(was+text))
	}
}

func (h *history) template(more bool) {
	tag := rapid.SampledFrom([]string{"4.0.0", "4.0.0-rev1", fmt.Sprintf("4.0.0-rev%d", h.revs[mariadb])}).Draw(h.t, "tag")
	spec := []string{"db=" + mariadb + ":" + tag}
	if more {
		spec = append(spec, "more="+velum+":4.0.0")
	}
	h.Node.PutTemplate("db.yaml", podYAML("db", spec...))
}

// seen is the state that must not change without approval.
type seen struct{ id, file, waiting string }

var places = [...][2]string{{"velum.yaml", "velum"}, {"velum.yaml", "db"}, {"velum.yaml", "setup"}, {"db.yaml", "db"}, {"etcd.yaml", "etcd"}}

func (h *history) seen() map[[2]string]seen {
	out := map[[2]string]seen{}
	for _, p := range places {
		c, _ := h.Node.Container(p[0], p[1])
		if !c.Running && (p[1] != "setup" || c.ExitCode != 0) {
			c.ID = "" // kubelet starts it as soon as it can
		}
		out[p] = seen{c.ID, h.Node.PodManifest(p[0]), h.Node.WaitingFile(p[0])}
	}
	return out
}

func (h *history) record() record.Record {
	r, err := h.Disk.Load(h.t.Context())
	require.NoError(h.t, err)
	return r
}

func (h *history) cycle(poll source.Poll) {
	approved := h.record().Approved
	h.watched(func(file string) bool { _, ok := approved[file]; return ok }, func() status.Status {
		s, err := h.agent.Cycle(h.t.Context(), poll)
		require.NoError(h.t, err)
		return s
	})
}

func (h *history) apply(ctx context.Context, names ...string) {
	if len(names) > 0 && h.Node.PodManifest(names[0]) == "" {
		names = nil
	}
	approved := h.record().Approved
	allowed := func(file string) bool {
		_, ok := approved[file]
		return ok || len(names) == 0 || file == names[0]
	}
	h.last = status.Status{} // it may stage first and return to its previous state
	h.watched(allowed, func() status.Status {
		out, _, err := h.agent.Apply(ctx, agent.ApplyRequest{Which: plan.Which{Images: names, All: len(names) == 0}})
		require.NoError(h.t, err)
		s := h.shown()
		for _, o := range out {
			if o.Result == status.ResultApplied {
				h.isNotOffered(s, o.PodManifest)
			}
		}
		return s
	})
}

// isNotOffered asserts that an applied release is not offered again. A newer one may be offered, because the apply has
// polled all sources.
func (h *history) isNotOffered(s status.Status, file string) {
	newer := false
	for _, i := range s.Images {
		if i.PodManifest == file && i.Offered != nil && i.Running != nil {
			require.NotEqual(h.t, i.Running.Digest, i.Offered.Digest)
			newer = true
		}
	}
	require.True(h.t, newer || podOf(s, file).Change == "", "%s was applied, and is offered", file)
}

func (h *history) retry() {
	h.last = status.Status{}
	h.watched(func(string) bool { return true }, func() status.Status {
		_, _, err := h.agent.Apply(h.t.Context(), agent.ApplyRequest{Which: plan.All(), Retry: true})
		require.NoError(h.t, err)
		return h.shown()
	})
}

// rollback returns all pods to their last known good releases, or reports why it cannot.
func (h *history) rollback() {
	h.last = status.Status{}
	h.watched(func(string) bool { return true }, func() status.Status {
		out, _, err := h.agent.Rollback(h.t.Context(), plan.All())
		require.NoError(h.t, err)
		for _, o := range out {
			if o.Result == status.ResultRolledBack {
				is := h.record().Overrides[o.PodManifest]
				require.False(h.t, is.Pending)
				text := h.Node.PodManifest(o.PodManifest)
				require.True(h.t, is.Data == text || is.Data == "" && h.Policy.Auto, "mode auto may bring the template after it")
			}
		}
		return h.shown()
	})
}

// shown returns the status after a request and the cycle that finishes its work.
func (h *history) shown() status.Status {
	s, err := h.agent.Cycle(h.t.Context(), source.PollNone)
	require.NoError(h.t, err)
	return s
}

func (h *history) applyAndDie() {
	ctx, die := context.WithCancel(h.t.Context())
	defer die()
	at, n := rapid.IntRange(1, 4).Draw(h.t, "die at"), 0
	h.Registry.OnAsk = func(string, string) { n++; dieAt(n, at, die) }
	h.Node.OnStop = func(string) error { n++; dieAt(n, at, die); return nil }
	defer func() { h.Registry.OnAsk, h.Node.OnStop = nil, nil }()
	h.died = true
	h.apply(ctx)
	h.died = false
	h.agent = h.Agent()
}

func dieAt(n, at int, die func()) {
	if n == at {
		die()
	}
}

// watched runs do and asserts that it changes nothing without approval.
func (h *history) watched(approved func(file string) bool, do func() status.Status) {
	before, was := h.seen(), h.record()
	s := do()
	after, is := h.seen(), h.record()
	byYes := approved
	approved = func(file string) bool {
		// A failed release is rolled back automatically.
		o := was.Overrides[file]
		return byYes(file) || h.Policy.Auto || o.Pending || is.Overrides[file].Data != o.Data
	}
	for p, b := range before {
		a, file := after[p], p[0]
		if b.id != "" && b.id != a.id {
			require.True(h.t, approved(file), "%v was restarted without approval", p)
			require.NotEqual(h.t, "etcd.yaml", file, "an unmanaged pod was restarted")
		}
		if held(s, file, "unresolved") && !approved(file) {
			require.Equal(h.t, b.file, a.file, "held %s was written: %v", file, podOf(s, file).Holds)
			// An unmanaged pod is not rendered, and a new pod needs no approval.
			if (!h.lost || a.waiting != "") && b.file != "" {
				require.Equal(h.t, b.waiting, a.waiting, "held %s was kept", file)
			}
		}
	}
	h.invariants(s)
	remembered, anew, err := h.agent.PlanBothWays(h.t.Context())
	require.NoError(h.t, err)
	require.Equal(h.t, anew, remembered, "a plan is the same with a memory as without")
}

func held(s status.Status, file, name string) bool {
	for _, x := range podOf(s, file).Holds {
		if x.Name == name {
			return true
		}
	}
	return false
}
