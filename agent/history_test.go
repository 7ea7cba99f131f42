// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
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

// locks makes the node restart all pods under the fleet lock.
func (h *history) locks() {
	h.Fleet = &agenttest.Fleet{}
	h.Policy.Lock = fleet.Lock{Pods: fleet.LockAll, Target: fleet.Target{Server: "https://lock", Group: "g"}, ID: "me"}
}

// lockOps are events of the lock: another node takes it when it is free and releases it, and the server fails before or
// after it grants the lock.
func (h *history) lockOps() []op {
	return []op{
		{"another node locks", func() {
			_, err := h.Fleet.Node("other").Lock(h.t.Context())
			require.True(h.t, err == nil || len(h.Fleet.Holders()) > 0)
		}},
		{"another node unlocks", func() { h.Fleet.Drop("other") }},
		{"the lock server", func() {
			lost, down := rapid.Bool().Draw(h.t, "lost"), rapid.Bool().Draw(h.t, "down")
			h.Fleet.OnLock = func(id string) (bool, error) {
				if down && id == "me" {
					return lost, errors.New("connection refused")
				}
				return false, nil
			}
			h.Fleet.OnUnlock = func(string) error {
				if down {
					return errors.New("connection refused")
				}
				return nil
			}
		}},
	}
}

// unlock restores the lock server with no other node waiting, and asserts that the nodes took turns.
func (h *history) unlock() {
	h.Fleet.OnLock, h.Fleet.OnUnlock = nil, nil
	h.Fleet.Drop("other")
	if h.lostLock && h.record().Lock.State == "" {
		h.Fleet.Drop("me") // by a person: see TestLockOfALostRecordIsReleasedByAPerson
	}
	h.Clock.Add(time.Hour) // the server is asked again by then
	require.LessOrEqual(h.t, h.Fleet.Most(), 1)
}

// anySize exceeds the size of all releases of a history.
const anySize = 1 << 40

// foreign are image names set by other clients, and whether they name old releases of a followed repository.
var foreign = map[string]bool{
	velum + ":latest": false, "docker.io/someone/else:1": false, mariadb + ":3.9.0-rev4": true, velum + ":4.0.0-rev1-build0.1": true,
}

// spaceOps change the disk, the images and their rules.
func (h *history) spaceOps() []op {
	return []op{
		{"pruning", func() { h.namesHold(); h.pruning(); h.agent = h.Agent() }}, // old releases may go
		{"disk", h.disk},
		{"empty disk", h.empty},
		{"pulls fill the disk", func() { h.fills = true; h.disk() }},
		{"foreign image", func() {
			name := rapid.SampledFrom([]string{
				velum + ":latest", "docker.io/someone/else:1", mariadb + ":3.9.0-rev4", velum + ":4.0.0-rev1-build0.1",
			}).Draw(h.t, "name")
			h.named[name] = h.someDigest()
			h.Node.Hold(name, h.named[name])
		}},
		{"shadow", func() {
			d := h.someDigest()
			h.Node.Hold(velum+"@"+d.String(), d)
		}},
		{"other container", func() {
			r := rapid.SampledFrom(h.published).Draw(h.t, "release")
			h.Node.Others = []digest.Digest{r.Config}
		}},
	}
}

func (h *history) disk() {
	h.Node.SetDisk(anySize, rapid.Int64Range(0, 300).Draw(h.t, "free"))
}

func (h *history) pruning() {
	h.Policy.Prune.Keep = rapid.IntRange(0, 2).Draw(h.t, "keep")
	h.Policy.Prune.Unstaged = rapid.Bool().Draw(h.t, "unstaged")
	h.Policy.MaxParallelStages = rapid.IntRange(1, 3).Draw(h.t, "together")
	h.Policy.Reserve.Bytes = rapid.Int64Range(0, 100).Draw(h.t, "reserve")
}

func (h *history) someDigest() digest.Digest {
	return rapid.SampledFrom(h.published).Draw(h.t, "release").Digest
}

func (h *history) filled(release.Release) error {
	if h.fills {
		return release.ErrNoSpace
	}
	return nil
}

// empty asserts that one cycle is enough after space was freed.
func (h *history) empty() {
	h.fills = false
	h.Node.SetDisk(anySize, anySize)
	h.cycle(source.PollNone)
	for _, p := range h.last.PodManifests {
		require.False(h.t, held(h.last, p.PodManifest, status.HoldDisk), "%s: %v", p.PodManifest, p.Holds)
	}
	require.NotContains(h.t, h.last.Reason, "are free on")
}

// namesHold asserts that the agent removed no name of other clients without being asked.
func (h *history) namesHold() {
	require.Empty(h.t, h.Node.PrunedInUse())
	for name, d := range h.named {
		is := func() bool { return strings.Contains(strings.Join(h.Node.Names(d), " ")+" ", name+" ") }
		if h.collected || h.Policy.Prune.Unstaged && foreign[name] {
			if !is() {
				delete(h.named, name)
			}
			continue
		}
		require.True(h.t, is(), "%s is gone", name)
	}
	h.collected = false
}

// reboot restarts the node. While the registry is away, images with pull policy Always do not
// start.
func (h *history) reboot() {
	before := h.seen()
	h.Node.PowerOff()
	h.booting = true
	defer func() { h.booting = false }()
	steps, err := h.Agent().Boot(h.t.Context())
	require.NoError(h.t, err)
	require.NoError(h.t, plan.BootErrors(steps))
	did := map[string]bool{}
	for _, s := range steps {
		did[s.File] = s.Do != ""
	}
	for p, b := range before {
		require.Equal(h.t, did[p[0]], b.file != h.Node.PodManifest(p[0]), "%s: %v", p[0], steps)
	}
	again, err := h.Agent().Boot(h.t.Context())
	require.NoError(h.t, err)
	for _, s := range again {
		require.Empty(h.t, s.Do, "a second boot would %s %s: %s\nfirst: %v\n%s\n---\n%s", s.Do, s.File, s.Reason, steps, s.Was.Data, s.Data)
	}
	h.agent = h.Agent()
	if rapid.Bool().Draw(h.t, "before kubelet") {
		h.cycle(source.PollNone)
	}
	h.Node.SetKubelet(true)
	h.Node.Sync()
}

func (h *history) loseRecord() {
	h.lostLock = h.lostLock || h.record().Lock.State != ""
	h.Disk.Lose()
	h.agent, h.last, h.lost = h.Agent(), status.Status{}, true
}

// localRegistryOps change the local registry in hosts.toml, and the disk with its table.
func (h *history) localRegistryOps() []op {
	return []op{
		{"local registry", func() {
			h.Hosts.SetPosition(suse, rapid.SampledFrom([]localregistry.Position{localregistry.Off, localregistry.Fallback, localregistry.Gate}).Draw(h.t, "position"))
		}},
		{"table", func() {
			h.tableFull = rapid.Bool().Draw(h.t, "full")
		}},
		{"login", func() {
			h.Hosts.SetPrivate(rapid.SampledFrom([]string{velum, mariadb}).Draw(h.t, "repository"), rapid.Bool().Draw(h.t, "private"))
		}},
	}
}

// useLocalRegistry gives the node a local registry, and checks each table that is saved.
func (h *history) useLocalRegistry() {
	h.UseLocalRegistry(suse, rapid.SampledFrom([]localregistry.Position{localregistry.Fallback, localregistry.Gate}).Draw(h.t, "position"))
	h.LocalRegistry.OnSave = func(t localregistry.Table) error {
		if h.tableFull {
			return errFull
		}
		h.tableHolds(t)
		return nil
	}
}

// tableHolds asserts that a table names only releases that are pinned, not denied, not private, and known to be
// approved: they run or ran well, or an approval, an override or the boot has named them.
func (h *history) tableHolds(t localregistry.Table) {
	rec := h.record()
	known := map[digest.Digest]bool{}
	for _, g := range rec.Good {
		known[g.Running] = true
	}
	for _, o := range rec.Overrides {
		for _, at := range o.Images {
			known[at.Digest] = true
		}
	}
	containers, _, err := h.Node.Containers(h.t.Context())
	require.NoError(h.t, err)
	for _, c := range containers {
		known[c.Digests[0]] = true
	}
	var last localregistry.Table // each of its entries was checked when it was added
	if h.LocalRegistry.Writes() > 0 {
		last = h.LocalRegistry.Table()
	}
	var started map[digest.Digest]bool
	for _, e := range t.Entries {
		repository := localregistry.ReferenceOf(e).Repository
		_, denied := rec.Denies(release.Release{Repository: repository, Digest: digest.Digest(e.Digest)})
		require.False(h.t, denied, "%v is denied", e)
		require.True(h.t, h.Node.Pinned(repository, digest.Digest(e.Digest)), "%v is not pinned", e)
		private, _ := h.Hosts.Private(repository)
		require.False(h.t, private, "%v is private", e)
		was, _ := last.Tag(e.Registry, e.Repository, e.Tag)
		if h.booting || known[digest.Digest(e.Digest)] || was.Digest == e.Digest {
			continue
		}
		if started == nil {
			started = h.approved()
		}
		require.True(h.t, started[digest.Digest(e.Digest)], "%v is not approved", e)
	}
}

// approved returns the digests that may be offered to the approved pods.
func (h *history) approved() map[digest.Digest]bool {
	approved := h.record().Approved
	out := map[digest.Digest]bool{}
	for file, repositories := range map[string][]string{
		"velum.yaml": {velum, mariadb}, "db.yaml": {mariadb, velum}, "etcd.yaml": {etcd},
	} {
		if _, is := approved[file]; !is && !h.Policy.Auto {
			continue
		}
		for _, r := range h.published {
			if slices.Contains(repositories, r.Repository) {
				out[r.Digest] = true
			}
		}
	}
	return out
}

func (h *history) invariants(s status.Status) {
	if busy, _ := h.Grain.Busy(h.t.Context()); busy == "" { // otherwise the grain keeps its text
		for _, u := range h.Grain.Last().Updates {
			require.True(h.t, h.Node.Pinned(u.Image, u.Digest), "%s %s is offered but not staged", u.Image, u.To)
		}
	}
	if h.last.State == s.State {
		require.Equal(h.t, h.last.Since, s.Since, "since moved without the state")
	}
	require.NotEmpty(h.t, s.Reasons, s.Reason)
	for _, r := range s.Reasons {
		require.NotEmpty(h.t, r.Kind)
		require.NotEmpty(h.t, r.Text)
	}
	require.Empty(h.t, nullLists(reflect.ValueOf(s), ""))
	require.LessOrEqual(h.t, len(s.History), 50)
	require.Equal(h.t, s.State == status.StateFailed, len(s.Failures) > 0)
	trouble := s.State == status.StateFailed
	for _, i := range s.Images {
		if i.Offered != nil && i.Staged {
			require.True(h.t, h.Node.Pinned(i.Image, i.Offered.Digest))
		}
		h.offerHolds(i)
		if c, ok := h.Node.Container(i.PodManifest, i.Container); ok && c.Running && i.Running != nil {
			require.Equal(h.t, c.Digests[0], i.Running.Digest, "status says what runs")
		}
	}
	h.last = s
	h.namesHold()
	h.recordHolds()
	plan, err := h.agent.Plan(h.t.Context(), source.PollNone)
	require.NoError(h.t, err)
	if trouble || h.died || len(h.record().Approved) > 0 { // an interrupted apply continues
		return
	}
	h.comesToRest(plan, s)
}

// comesToRest asserts that the cycles after this one do almost nothing: they release what a deleted or applied pod
// manifest needed, and finish health checks of written pods, which set a new rollback target.
func (h *history) comesToRest(p plan.Plan, s status.Status) {
	var err error
	for range 2 {
		for _, step := range p.Steps {
			if step.Apply.Auto {
				return // it waits for its registry, and each observation retries it
			}
			if step.Do == plan.StepRollBack && s.Lock.State == fleet.LockWaiting {
				return // a person's rollback of a healthy pod waits for the lock
			}
			if step.Lost {
				continue // a new rollback target: the next cycle fetches it, or the next poll if the registry lacks it
			}
			require.Contains(h.t, []plan.Verb{plan.StepPin, plan.StepPrune, plan.StepVerify}, step.Do, "a second cycle would %s: %s", step, s.Reason)
		}
		s, err = h.agent.Cycle(h.t.Context(), source.PollNone)
		require.NoError(h.t, err)
		h.last = s
		for _, i := range s.Images {
			if i.Running != nil && len(h.Node.Names(i.Running.Digest)) > 0 {
				require.True(h.t, h.Node.Pinned(i.Image, i.Running.Digest), "%s runs %v without a pin", i.PodManifest, i.Running)
			}
		}
		p, err = h.agent.Plan(h.t.Context(), source.PollNone)
		require.NoError(h.t, err)
		if s.State == status.StateFailed {
			return // a release started by a write did not come up
		}
	}
	require.Empty(h.t, p.Steps, "a fourth cycle has steps")
}

// offerHolds asserts that all offers obey the current rules.
func (h *history) offerHolds(i status.ImageStatus) {
	if i.Offered == nil || i.Running == nil {
		return
	}
	to, change := h.namesOf(i), tags.Same
	for _, tag := range to {
		require.Empty(h.t, matching(h.rule.Deny, tag), "%s is denied", tag)
		t, err := tags.Parse(tag)
		require.False(h.t, err == nil && t.Exceeds(h.rule.Max), "%s is above %s", tag, h.rule.Max)
		if follow, errFollow := tags.Parse(i.Follow); err == nil && errFollow == nil {
			change = max(change, tags.ChangeBetween(follow, t))
		}
	}
	require.NotContains(h.t, h.rule.Deny, i.Offered.Digest.String())
	allowed := len(h.rule.Allow) == 0 || slices.ContainsFunc(to, func(tag string) bool { return matching(h.rule.Allow, tag) != "" })
	require.True(h.t, allowed, "%v is not among %v", to, h.rule.Allow)
	_, failed := h.record().Denied[i.Image+"@"+i.Offered.Digest.String()]
	require.False(h.t, failed, "%v did not come up", to)
	if i.Change == policy.ChangeConvert {
		return // the running release may be unsigned
	}
	signed := h.rule.Signatures != policy.SignaturesRequire || h.record().Signed[i.Image+"@"+i.Offered.Digest.String()] != ""
	require.True(h.t, signed || !i.Staged, "%v is not signed", to)
	if h.isOnDisk(i.PodManifest, i.Image, i.Follow) {
		change = max(change, tags.Rebuild) // no template uses it
	}
	require.LessOrEqual(h.t, change, h.rule.Updates, "%s to %v: %s", i.Follow, to, i.Change)
	h.offersNothingOlder(i)
}

func matching(patterns []string, name string) string {
	for _, p := range patterns {
		if ok, _ := path.Match(p, name); ok {
			return p
		}
	}
	return ""
}

// namesOf returns the tags of the offer: its best name, and the floating tag for the rendered pod manifest.
func (h *history) namesOf(i status.ImageStatus) []string {
	names := []string{i.Offered.Tag}
	for _, o := range h.record().Offers {
		for _, c := range o.Newer {
			if c.Digest == i.Offered.Digest && c.Repository == i.Image {
				names = append(names, c.Tag)
			}
		}
	}
	return names
}

func (h *history) isOnDisk(file, repository, tag string) bool {
	return strings.Contains(h.Node.PodManifest(file)+"\n", repository+":"+tag+"\n")
}

// offersNothingOlder asserts that a tag that was moved to an older build is followed only if the policy says so.
func (h *history) offersNothingOlder(i status.ImageStatus) {
	is, errIs := tags.Parse(i.Offered.Tag)
	was, errWas := tags.Parse(i.Running.Tag)
	if errIs != nil || errWas != nil || h.rule.Older || is.Form() != tags.Long || was.Form() != tags.Long {
		return
	}
	later := strings.Contains(strings.Join(i.Notes, " "), "was created later") // an OBS counter that was reset
	if line, _ := is.Intermediate(); !later || i.Follow != is.App() && i.Follow != line.String() {
		require.GreaterOrEqual(h.t, tags.Compare(is, was), 0, "%s was offered to follow %s", is, was)
	}
}

// recordHolds asserts that the record survives a save and load, and that the node has every rollback target.
func (h *history) recordHolds() {
	r := h.record()
	data, err := json.Marshal(r)
	require.NoError(h.t, err)
	require.JSONEq(h.t, h.Disk.JSON(), string(data))
	for key, g := range r.Good {
		for _, p := range g.Before {
			if len(h.Node.Names(p.Digest)) > 0 && h.last.State != status.StateFailed {
				require.True(h.t, h.Node.Pinned(p.Repository, p.Digest), "%s: a rollback target is not pinned", key)
			}
		}
	}
}

// settle asserts that the node always converges: with the registry back and everything approved, all managed pods are
// up to date.
func (h *history) settle() {
	h.unlock()
	h.Registry.Down(nil)
	h.Registry.DownLists(nil)
	h.Grain.SetBusy("")
	h.staging, h.tableFull = false, false
	h.empty()
	for _, d := range h.crashed {
		h.Node.Crash(d, false)
	}
	h.resume()
	h.Policy.StageDelay, h.Policy.ConfirmAfter = 0, 0
	h.obey(policy.Rule{Updates: tags.Revision})
	h.agent = h.Agent()
	if h.lost {
		h.template(false) // without it the file is unmanaged
	}
	for _, repository := range []string{velum, mariadb, etcd} {
		newest := h.revs[repository]
		for h.revs[repository] = 1; h.revs[repository] < newest; h.revs[repository]++ {
			h.rebuild(repository) // any retracted release is back
		}
		h.rebuild(repository)
	}
	for range 3 {
		h.Node.Sync() // kubelet retries failed pulls
		h.cycle(source.PollAll)
		h.apply(h.t.Context())
	}
	for _, file := range []string{"velum.yaml", "db.yaml"} {
		p := podOf(h.last, file)
		require.Empty(h.t, p.Change, "%s: %s", file, h.last.Reason)
		require.Empty(h.t, p.Error)
		for _, hold := range p.Holds {
			require.Contains(h.t, []string{"unmanaged", "edited"}, hold.Name, hold.Reason)
		}
		require.Empty(h.t, h.Node.WaitingFile(file))
	}
	require.Empty(h.t, h.Fleet.Holders(), "what is verified healthy needs no lock: %s", h.last.Reason)
}

// Two cycles, or a cycle and a plan request, may call Decide with the same arguments at once. The race detector fails
// this test if Decide or AtBoot writes to them.
func TestDecideIsPure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Node.SetKubelet(true)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Release(mariadb, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":4.0.0"))
	w.Node.PutPodManifest("db.yaml", podYAML("db", "db="+mariadb+":4.0.0-rev1"))
	w.check()
	w.publish(2, "1.1")
	inv, offers, rec, policy := w.agent.Arguments(t.Context())
	want := plan.Decide(inv, offers, rec, policy, w.Clock.Now())
	require.NotEmpty(t, want.Pods)
	atBoot := plan.AtBoot(inv, rec, policy, w.Clock.Now())
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			assert.Equal(t, want, plan.Decide(inv, offers, rec, policy, w.Clock.Now()))
			assert.Equal(t, atBoot, plan.AtBoot(inv, rec, policy, w.Clock.Now()))
		})
	}
	group.Wait()
}
