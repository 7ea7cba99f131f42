// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// rewrite writes the pages of status as they are now.
var rewrite = flag.Bool("rewrite", false, "write testdata anew")

// pageOf is the status for people on a terminal of that many columns; 0: on none.
func pageOf(t *testing.T, s status.Status, width int, now time.Time, away bool) string {
	t.Helper()
	var out bytes.Buffer
	p := terminal.NewPage(&out, now)
	p.Width = width
	require.NoError(t, Status(p, s, away))
	return out.String()
}

// noon is where the pages are read.
var noon = time.Date(2026, time.November, 21, 12, 0, 0, 0, time.FixedZone("CET", 3600))

func before(d time.Duration) *time.Time { at := noon.Add(-d); return &at }

// node is one whose pods run well, with an offer for velum; edit makes it another.
func node(state status.State, reason string, edit func(*status.Status)) status.Status {
	named := func(tag string) *status.Named { return &status.Named{Tag: tag, Digest: digest.FromString(tag)} }
	s := status.Status{
		State: state, Reason: reason, Since: noon.Add(-3 * time.Hour), Written: noon.Add(-time.Minute),
		LastCheck: before(3 * time.Hour), NextCheck: before(-9 * time.Hour),
		Sources: []status.SourceStatus{
			{Repository: caasp + "velum", Host: "m1.example.com:5000", Mirror: true, LastSuccess: before(3 * time.Hour)},
			{Repository: caasp + "etcd", Host: "m1.example.com:5000", Mirror: true, LastSuccess: before(3 * time.Hour)},
		},
		Images: []status.ImageStatus{
			{
				Image: caasp + "etcd", Container: "etcd", PodManifest: "etcd.yaml", Follow: "3.4.3-rev2", Host: "m1.example.com:5000",
				Mirror: true, Running: named("3.4.3-rev2-build1.7"),
			},
			{
				Image: caasp + "velum", Container: "velum-dashboard", PodManifest: "velum.yaml", Follow: "4.0.0-rev1",
				Host: "m1.example.com:5000", Mirror: true, Running: named("4.0.0-rev1-build1.3"),
				Offered: named("4.0.0-rev2-build2.1"), Change: "revision", Staged: true, Size: 120e6,
			},
			{
				Image: caasp + "velum", Container: "velum", PodManifest: "velum.yaml", Follow: "4.0.0-rev1",
				Host: "m1.example.com:5000", Mirror: true, Running: named("4.0.0-rev1-build1.3"),
				Offered: named("4.0.0-rev2-build2.1"), Change: "revision", Staged: true, Size: 120e6,
			},
		},
		PodManifests: []status.PodStatus{
			{PodManifest: "etcd.yaml", Pod: "etcd"}, {PodManifest: "velum.yaml", Pod: "velum", Change: "revision", Waiting: true},
		},
	}
	if edit != nil {
		edit(&s)
	}
	return s
}

func nothingOffered(s *status.Status) {
	for n := range s.Images {
		s.Images[n].Offered, s.Images[n].Change, s.Images[n].Staged = nil, "", false
	}
	s.PodManifests[1].Change = ""
}

// failedHere refuses what would be offered: it has failed on this node.
func failedHere(s *status.Status) {
	nothingOffered(s)
	for n := range s.Images {
		s.Images[n].Refused = []policy.Refusal{{Tag: "4.0.0-rev2-build2.1", Rule: policy.RuleFailed}}
	}
}

// neverAsked makes it a node where the agent was installed just now, and polling is off.
func neverAsked(s *status.Status) {
	nothingOffered(s)
	s.LastCheck, s.NextCheck, s.Sources = nil, nil, nil
	for n := range s.Images {
		s.Images[n].Host, s.Images[n].Mirror = "", false
	}
}

func catalogOf(version uint64, edit func(*catalog.Status)) *catalog.Status {
	c := &catalog.Status{
		Catalog: "registry.example.com/releases/catalog:prod", Version: version, Expires: before(-90 * 24 * time.Hour), Images: 2,
	}
	edit(c)
	return c
}

// pages are nodes that a tired admin looks at.
func pages() map[string]status.Status {
	const unlisted = "etcd.yaml has no template and is not listed under manage"
	const window = "the next maintenance window opens at 2026-11-22T01:00:00Z"
	year := time.Date(2027, time.January, 7, 0, 0, 0, 0, time.UTC)
	const away = "mirror m1.example.com:5000: 503 Service Unavailable (upstream registry.suse.com: dial tcp " +
		"203.0.113.5:443: connect: connection refused)"
	const slow = "stage: " + caasp + "velum: mirror m1.example.com:5000: body: less than 1024 bytes a second over 1m0s " +
		"(staging.leastSpeed)"
	all := map[string]status.Status{
		"current": node(status.StateCurrent, "everything is up to date", nothingOffered),
		"staged":  node(status.StateStaged, "waiting for approval: velum.yaml (revision)", nil),
		"held": node(status.StateHeld, "velum.yaml: window: "+window, func(s *status.Status) {
			s.PodManifests[0].Holds = []status.Hold{{Name: status.HoldUnmanaged, Reason: "it has no template and is not listed under manage"}}
			s.PodManifests[1].Holds = []status.Hold{
				{Name: status.HoldWindow, Reason: window},
				{Name: status.HoldRequested, Reason: caasp + "velum: no changes before the holidays, until 2027-01-07T00:00:00Z", Until: year, Image: caasp + "velum"},
			}
		}),
		"held-unmanaged": node(status.StateHeld, "etcd.yaml: unmanaged: "+unlisted, func(s *status.Status) {
			nothingOffered(s)
			s.Images[0].Offered, s.Images[0].Change, s.Images[0].Staged = s.Images[0].Running, "patch", true
			s.PodManifests[0].Change = "patch"
			s.PodManifests[0].Holds = []status.Hold{{Name: status.HoldUnmanaged, Reason: unlisted}}
		}),
		"rolled-back": node(status.StateCurrent, "nothing to apply; velum.yaml was rolled back to 4.0.0-rev1-build1.3 and "+
			"4.0.0-rev2-build2.1 is denied until apply --retry velum.yaml or a newer release", func(s *status.Status) {
			failedHere(s)
			s.PodManifests[1].RolledBack = &status.RolledBack{
				At: noon.Add(-time.Hour), ByHand: true, Denied: []string{"4.0.0-rev2-build2.1"}, Runs: []string{"4.0.0-rev1-build1.3"},
			}
		}),
		"staged-pull-policy": node(status.StateStaged, "waiting for approval: velum.yaml (revision)", func(s *status.Status) {
			s.PodManifests[1].Edits = []status.Edit{
				{Container: "velum", Field: status.EditImage, From: "4.0.0-rev1-build1.3", To: "4.0.0-rev2-build2.1"},
				{Container: "velum", Field: status.EditPullPolicy, From: "IfNotPresent", To: "Always"},
			}
		}),
		"stale": node(status.StateStale, "a long list", func(s *status.Status) {
			nothingOffered(s)
			for n := range s.Sources {
				r := &s.Sources[n]
				r.Failures, r.Reason, r.RetryAt = 4+n, away, before(-20*time.Minute)
				r.Cause = release.CauseServerError
				r.LastSuccess = before(26 * time.Hour)
			}
			s.Sources[1].Cause, s.Sources[1].Reason = release.CauseUnasked, "not asked until 2026-11-21T12:01:00Z: "+away
			for n := range s.Images {
				s.Images[n].Error, s.Images[n].ErrorKind = s.Images[n].Image+": "+away, status.ErrorSource
			}
		}),
		"staged-withdrawn": node(status.StateStaged, "waiting for approval: velum.yaml (revision)", func(s *status.Status) {
			s.Catalog = catalogOf(12, func(*catalog.Status) {})
			for n := 1; n < 3; n++ {
				s.Images[n].Bound = true
				s.Images[n].Withdrawn = &catalog.Withdrawal{Reason: "bsc#1199876: loses its session secret", To: "4.0.0-rev2-build2.1"}
			}
		}),
		"held-withdrawn": node(status.StateHeld, "velum.yaml: older", func(s *status.Status) {
			nothingOffered(s)
			s.Catalog = catalogOf(12, func(*catalog.Status) {})
			s.Images[1].Withdrawn = &catalog.Withdrawal{Reason: "loses its session secret", To: "4.0.0-rev1-build1.1"}
			s.Images[1].Refused = []policy.Refusal{{
				Tag: "4.0.0-rev1-build1.1", Rule: policy.RuleOlder, Reason: "what runs is newer", Key: "older: true", Holds: true,
			}}
			s.Reasons = []status.Reason{{Kind: status.KindAwaited, Rule: policy.RuleOlder}}
		}),
		"failed-withdrawn": node(status.StateFailed, "velum.yaml: 4.0.0-rev1-build1.3 is running but was withdrawn: loses its session "+
			"secret (instead: 4.0.0-rev1-build1.1)", func(s *status.Status) {
			nothingOffered(s)
			s.Catalog = catalogOf(12, func(*catalog.Status) {})
			s.Images[1].Withdrawn = &catalog.Withdrawal{Reason: "loses its session secret", To: "4.0.0-rev1-build1.1"}
			s.Reasons = []status.Reason{{Kind: status.KindWithdrawn, PodManifest: "velum.yaml"}}
		}),
		"failed-catalog": node(status.StateFailed, "catalog registry.example.com/releases/catalog:prod: version 11 is older than 12",
			func(s *status.Status) {
				nothingOffered(s)
				s.Catalog = catalogOf(12, func(c *catalog.Status) { c.Error = "version 11 is older than 12" })
				s.Reasons = []status.Reason{{Kind: status.KindCatalog}}
			}),
		"stale-catalog": node(status.StateStale, "registry.example.com/releases/catalog:prod version 12 expired at 2026-11-20T11:00:00Z",
			func(s *status.Status) {
				s.Catalog = catalogOf(12, func(c *catalog.Status) { c.Expires, c.Expired = before(24*time.Hour), true })
				s.Reasons = []status.Reason{{Kind: status.KindCatalog}}
			}),
		"unchecked-catalog": node(status.StateUnchecked, "no registry has been asked yet for velum.yaml", func(s *status.Status) {
			neverAsked(s)
			s.Catalog = catalogOf(0, func(c *catalog.Status) { c.Error = "connection refused" })
		}),
		"failed": node(status.StateFailed, "velum.yaml: 4.0.0-rev2-build2.1 was rolled back: pod velum: not running after 5m0s: "+
			"velum is not running (exit code 1)", failedHere),
		"failed-step": node(status.StateFailed, "etcd.yaml: apply: pod etcd: cri: connection refused", func(s *status.Status) {
			s.PodManifests[0].Error = "apply: pod etcd: cri: connection refused"
			s.PodManifests[1].Error = "line 7: not valid YAML"
		}),
		"failed-slow": node(status.StateFailed, caasp+"velum@sha256:4711: "+slow, func(s *status.Status) {
			for n := 1; n < 3; n++ { // of one pod manifest: told once
				s.Images[n].Staged, s.Images[n].RetryAt = false, before(-9*time.Minute)
				s.Images[n].Error, s.Images[n].ErrorKind = slow, status.ErrorSource
			}
			s.Images = append(s.Images, status.ImageStatus{Image: caasp + "pause", RetryAt: before(time.Second)})
		}),
		"applying": node(status.StateApplying, "applying what was approved", func(s *status.Status) {
			s.Since = noon.Add(-12 * time.Second)
			s.Progress = &status.Progress{Reference: "velum", Phase: "verifying"}
			s.Interrupted = &status.Interruption{Work: "staging", For: "apply", At: noon.Add(-12 * time.Second)}
		}),
		"unchecked": node(status.StateUnchecked, "no registry has been asked yet for etcd.yaml, velum.yaml", func(s *status.Status) {
			neverAsked(s)
			s.NextCheck = before(-7 * time.Minute)
		}),
		"unchecked-off": node(status.StateUnchecked, "no registry has been asked yet for etcd.yaml, velum.yaml", neverAsked),
		"pulling": node(status.StateUnchecked, "no registry has been asked yet for velum.yaml", func(s *status.Status) {
			s.LastCheck, s.NextCheck = nil, before(-7*time.Minute)
			s.Images[1].Staged, s.Images[2].Staged = false, false
			s.Pulls = []status.Progress{
				{Reference: caasp + "velum:4.0.0-rev2-build2.1", Phase: "downloading", Done: 30e6, Total: 120e6},
				{Reference: caasp + "etcd:3.4.3-rev2-build1.8", Phase: "resolving"},
			}
			s.Budget = &status.BudgetStatus{PerHour: 3600, Remaining: 12}
		}),
		"nothing-runs": node(status.StateCurrent, "everything is up to date", func(s *status.Status) {
			nothingOffered(s)
			s.NextCheck = nil
			s.Images[0].Running = nil
			s.Images[1].Running = &status.Named{Digest: digest.FromString("x")}
			s.Images[2].PickedUp = true
			s.Images = append(s.Images, status.ImageStatus{Image: caasp + "pause", Follow: "3.2", Notes: []string{"its label is \x1b[2J"}})
			s.PodManifests[1].Untouched = []status.Untouched{
				{Line: 12, Reference: "busybox", Reason: "no-known-tag", Text: "no tag is known"},
				{Path: "spec.containers[1].image", Line: 15, Reason: "empty", Text: "no image is written"},
			}
			s.Sources[0].Insecure, s.Sources[0].Skipped = true, "mirror m0:5000: 503 Service Unavailable"
		}),
		"failed-down": node(status.StateFailed, "velum.yaml: velum is not running (exit code 137): CrashLoopBackOff: back-off 40s", func(s *status.Status) {
			nothingOffered(s)
			s.Images[2].LastKnownGood = s.Images[2].Running
			s.Images[2].Running, s.Images[2].Down = nil, &status.Down{
				Since: *before(5 * time.Minute), ExitCode: 137, Reason: "CrashLoopBackOff", Message: "back-off 40s",
			}
		}),
		"starting-pod": node(status.StateApplying, "velum.yaml: velum is not started yet: ContainerCreating", func(s *status.Status) {
			nothingOffered(s)
			s.Images[2].Running, s.Images[2].Down = nil, &status.Down{Since: *before(time.Minute), Starting: true, Reason: "ContainerCreating"}
		}),
		"failed-now": node(status.StateFailed, "velum.yaml: apply: pod velum: not running after 5m0s: velum does not run "+
			"(exit code 1); rolled back to 4.0.0-rev1-build1.3", func(s *status.Status) {
			failedHere(s)
			s.PodManifests[1].Error = "apply: pod velum: not running after 5m0s: velum is not running (exit code 1); " +
				"rolled back to 4.0.0-rev1-build1.3"
		}),
		"failed-two": node(status.StateFailed, "etcd.yaml: 3.4.3-rev2-build1.8 was rolled back: pod etcd: not ready after 5m0s; "+
			"record: /var/lib: no space left on device", nothingOffered),
		"failed-stays": node(status.StateFailed, "velum.yaml: apply: pod velum: not running after 5m0s: velum does not run; "+
			"it stays as it is: what ran before did not run well either", failedHere),
		"failed-blind": {
			State: status.StateFailed, Since: noon, Reason: "containerd /run/containerd/containerd.sock: connect: no such file",
		},
		"held-one": node(status.StateHeld, "", func(s *status.Status) {
			s.PodManifests[1].Holds = []status.Hold{{Name: status.HoldRequested, Reason: caasp + "velum: no changes before the holidays", Image: caasp + "velum"}}
		}),
		"held-everything": node(status.StateHeld, "", func(s *status.Status) {
			for n := range s.PodManifests {
				s.PodManifests[n].Holds = []status.Hold{{
					Name: status.HoldRequested, Reason: "everything, until 2027-01-07T00:00:00Z", Until: year, Image: record.AllImages,
				}}
			}
		}),
		"held-configured": node(status.StateHeld, "", func(s *status.Status) {
			const reason = caasp + "velum: tested until Thursday (configuration), until 2026-12-24T00:00:00Z"
			s.PodManifests[1].Holds = []status.Hold{{Name: status.HoldRequested, Reason: reason, By: status.ByConfiguration}}
		}),
		"held-grains": node(status.StateHeld, "", func(s *status.Status) {
			s.PodManifests[1].Holds = []status.Hold{{Name: status.HoldBusy, Reason: "grains: /etc/salt/grains: not edited: line 1"}}
		}),
		"held-busy": node(status.StateHeld, "", func(s *status.Status) {
			s.PodManifests[0].Holds = []status.Hold{{
				Name: status.HoldBusy, Reason: "the grain update_in_progress is true", Grain: "update_in_progress",
			}}
		}),
		"held-apply": node(status.StateHeld, "velum.yaml: apply: held: registry does not answer: "+away, func(s *status.Status) {
			s.PodManifests[1].Error = "apply: held: registry does not answer: " + away
		}),
		"starting": {State: status.StateUnchecked, Reason: "starting", Since: noon},
		"current-newer": node(status.StateCurrent, "nothing to apply; newer but not allowed: velum 4.1.0-rev1 (updates); "+
			"rebuilds only: etcd 3.6.4-c558096", func(s *status.Status) {
			nothingOffered(s)
			s.Images[0].RebuildsOnly = &status.RebuildsOnly{
				Tag: "3.6.4-c558096", Reason: "a hash in it, which has no order", Pattern: "^(?P<version>[0-9.]+)-[0-9a-f]+$",
			}
			for n := 1; n < 3; n++ {
				s.Images[n].NotAllowed = []policy.Refusal{
					{Tag: "4.1.0-rev1", Rule: policy.RuleUpdates, Reason: "minor is more than revision", Key: "updates: minor"},
					{Tag: "4.0.0-rev3", Rule: policy.RuleDeny, Reason: "matches *-rev3", Key: "deny"},
				}
			}
		}),
		"held-newer": node(status.StateHeld, "velum.yaml: signature: "+caasp+"velum:4.0.0-rev3: not signed", func(s *status.Status) {
			s.Images[1].Refused = []policy.Refusal{
				{Tag: "4.0.0-rev3", Rule: policy.RuleSignature, Reason: "not signed; next try at 2026-11-21T13:00:00Z", Holds: true},
			}
		}),
		"no-pods": {State: status.StateCurrent, Reason: "no image to follow", Since: noon},
	}
	for name, reasons := range reasonsOf() {
		s, known := all[name]
		if !known {
			panic(name)
		}
		s.Reasons = reasons
		all[name] = s
	}
	return all
}

// reasonsOf are the reasons of pages that go by them.
func reasonsOf() map[string][]status.Reason {
	of := func(kind status.Kind, file string) status.Reason { return status.Reason{Kind: kind, PodManifest: file} }
	hold := func(file, name string) status.Reason {
		return status.Reason{Kind: status.KindHold, PodManifest: file, Hold: name}
	}
	step := status.Reason{Kind: status.KindStep, PodManifest: "etcd.yaml", ErrorKind: status.ErrorOther}
	waits := status.Reason{Kind: status.KindStep, PodManifest: "velum.yaml", ErrorKind: status.ErrorSource}
	slow := status.Reason{Kind: status.KindStep, Image: caasp + "velum", ErrorKind: status.ErrorSource}
	now := status.Reason{Kind: status.KindRolledBack, PodManifest: "velum.yaml", ErrorKind: status.ErrorNotUp}
	return map[string][]status.Reason{
		"stale":           {{Kind: status.KindSource, Image: caasp + "etcd"}, {Kind: status.KindSource, Image: caasp + "velum"}},
		"failed":          {of(status.KindRolledBack, "velum.yaml")},
		"failed-now":      {now},
		"failed-two":      {of(status.KindRolledBack, "etcd.yaml"), {Kind: status.KindRecord}},
		"failed-stays":    {of(status.KindNotUp, "velum.yaml")},
		"failed-step":     {step},
		"failed-slow":     {slow},
		"failed-down":     {of(status.KindDown, "velum.yaml")},
		"starting-pod":    {of(status.KindDown, "velum.yaml")},
		"starting":        {{Kind: status.KindStarting}},
		"held":            {hold("velum.yaml", status.HoldRequested), hold("velum.yaml", status.HoldWindow)},
		"held-unmanaged":  {hold("etcd.yaml", status.HoldUnmanaged)},
		"held-one":        {hold("velum.yaml", status.HoldRequested)},
		"held-everything": {hold("etcd.yaml", status.HoldRequested), hold("velum.yaml", status.HoldRequested)},
		"held-configured": {hold("velum.yaml", status.HoldRequested)},
		"held-grains":     {hold("velum.yaml", status.HoldBusy)},
		"held-busy":       {hold("etcd.yaml", status.HoldBusy)},
		"held-apply":      {waits},
		"held-newer":      {{Kind: status.KindAwaited, PodManifest: "velum.yaml", Image: caasp + "velum", Rule: policy.RuleSignature}},
	}
}

// Each page as it stands in a file, on a wide terminal and on a narrow one.
func TestStatusPages(t *testing.T) {
	t.Parallel()
	files := map[string]bool{}
	check := func(name, got string) {
		file := filepath.Join("testdata", name+".txt")
		files[file] = true
		if *rewrite {
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, string(want), got, name)
	}
	for name, s := range pages() {
		check(name, pageOf(t, s, 80, noon, false))
	}
	check("held-50-columns", pageOf(t, pages()["held"], 50, noon, false))
	check("staged-60-columns", pageOf(t, pages()["staged"], 60, noon, false))
	check("failed-slow-daemon-away", pageOf(t, pages()["failed-slow"], 80, noon, true))
	check("stale-no-terminal", pageOf(t, pages()["stale"], 0, noon, false))
	check("staged-daemon-away", pageOf(t, pages()["staged"], 80, noon, true))
	there, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	assert.Len(t, there, len(files), "a page that no test shows")
}

// Only a word that is longer than a line may be broken by the terminal.
func TestPagesFitTheTerminal(t *testing.T) {
	t.Parallel()
	for name, s := range pages() {
		for _, width := range []int{40, 60, 80, 100, 132} {
			for line := range strings.Lines(pageOf(t, s, width, noon, false)) {
				line = strings.TrimRight(line, "\n")
				words := strings.Fields(line)
				longest := 0
				for _, w := range words {
					longest = max(longest, utf8.RuneCountInString(w))
				}
				if utf8.RuneCountInString(line) > width && width >= 80 {
					assert.Greater(t, longest+13, width, "%s, %d columns: %q", name, width, line)
				}
			}
		}
	}
}

func TestColoursOfStates(t *testing.T) {
	t.Parallel()
	for state, colour := range map[status.State]string{
		status.StateCurrent: "32", status.StateFailed: "31", status.StateHeld: "33", status.StateStale: "33",
		status.StateStaged: "33", status.StateApplying: "33", status.StateUnchecked: "33",
	} {
		var out bytes.Buffer
		p := terminal.NewPage(&out, noon)
		p.Colour = true
		require.NoError(t, Status(p, status.Status{State: state}, true))
		assert.Contains(t, out.String(), "State:       \x1b[1;"+colour+"m"+string(state)+"\x1b[0m since ")
	}
}

// Many repositories behind one host are one outage.
func TestOneOutageIsShownOnce(t *testing.T) {
	t.Parallel()
	var s status.Status
	for n := range 30 {
		repository := fmt.Sprintf("r/app%02d", n)
		s.Sources = append(s.Sources, status.SourceStatus{
			Repository: repository, Host: "r", Failures: n + 1, Reason: "upstream r: 503", LastSuccess: before(time.Duration(n) * time.Hour),
			RetryAt: before(-time.Duration(30-n) * time.Minute),
		})
	}
	s.Sources[0].Cause, s.Sources[0].Reason = release.CauseUnasked, "upstream r: left alone for a minute: 503"
	s.Sources[7].Reason = "upstream r: 401"
	s.State, s.Reasons = status.StateStale, make([]status.Reason, 30)
	for n := range s.Reasons {
		s.Reasons[n].Kind = status.KindSource
	}
	s.Reasons = append(s.Reasons, status.Reason{Kind: status.KindApproval, PodManifest: "b.yaml", Change: "rebuild"})
	text := pageOf(t, s, 0, noon, false)
	assert.Equal(t, 1, strings.Count(text, "upstream r: 503"))
	assert.Contains(t, text, "r/app01, r/app02, r/app03 and 26 more", "with that which was not asked, as its host had failed")
	assert.Contains(t, text, "30 failures in a row; last answer 29h ago")
	assert.Contains(t, text, terminal.Clock(*before(-time.Minute), noon.Location())+" (in 1m)")
	assert.Contains(t, text, "upstream r: 401\n    for      r/app07\n")
	assert.Contains(t, text, "30 repositories, so its offers may be out of date")
	assert.Contains(t, text, "Waiting:     for approval: b.yaml (rebuild)\n", "what waits is said in every state")
	assert.Contains(t, text, "image-update-agent apply b.yaml")
}

// A hold is shown once: with the offer that it holds, or else by itself.
func TestStatusShowsHoldsOfWhatComes(t *testing.T) {
	t.Parallel()
	since, until := time.Unix(0, 0).UTC(), time.Unix(7200, 0).UTC()
	s := status.Status{StandingHolds: []status.StandingHold{
		{Repository: "*", Name: "freeze", Reason: "no updates before spring", By: status.Actor{Kind: status.ByConfiguration}},
		{
			Repository: "a/velum", Name: "hold", Reason: "demo", Since: &since, Until: &until,
			By: status.Actor{Kind: status.ByPerson, Via: "bus", UID: new(uint32(1000)), User: "alice"},
		},
	}}
	page := pageOf(t, s, 0, time.Unix(3600, 0), false)
	assert.Contains(t, page, `
Standing holds:
  freeze: no updates before spring
    for      every image
    by       configuration
    remedy   wait for the date; or change apply.freeze and reload
  hold: demo
    for      a/velum
    by       alice (uid 1000, bus) at 1970-01-01 00:00:00 UTC (1h ago)
    until    1970-01-01 02:00:00 UTC (in 1h)
    remedy   image-update-agent resume velum; or wait until it ends
`)
	s.PodManifests = []status.PodStatus{{PodManifest: "velum.yaml", Holds: []status.Hold{
		{Name: "hold", Reason: "demo", Image: "a/velum", By: status.ByPerson, Until: until}, {Name: "freeze", Reason: "spring"},
	}}}
	assert.NotContains(t, pageOf(t, s, 0, time.Unix(3600, 0), false), "Standing holds:")
}

// lineOf are the lines of a status for people that begin so.
func lineOf(t *testing.T, s status.Status, begin string) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(pageOf(t, s, 0, time.Unix(0, 0), false)) {
		if text, ok := strings.CutPrefix(line, begin); ok {
			found = append(found, strings.TrimSpace(text))
		}
	}
	return found
}

func TestStatusSaysWhoAnswered(t *testing.T) {
	t.Parallel()
	s := status.Status{Images: []status.ImageStatus{
		{Image: "a", Host: "m1:5000", Mirror: true},
		{Image: "a", Host: "m1:5000", Mirror: true, Container: "second"},
		{Image: "b", Host: "m1:5000", Mirror: true},
		{Image: "c", Host: "registry.suse.com"},
		{Image: "d"},
	}}
	assert.Equal(t, []string{"mirror m1:5000 (2 images), upstream registry.suse.com (1 image)"}, lineOf(t, s, "Answered by:"))
	assert.Empty(t, lineOf(t, status.Status{Images: []status.ImageStatus{{Image: "d"}}}, "Answered by:"))
}

// budgets are what is left of 100 requests, and whether a person is told.
var budgets = map[int]bool{100: false, 10: false, 9: true, 0: true}

func TestStatusShowsABudgetThatIsNearlySpent(t *testing.T) {
	t.Parallel()
	for left, told := range budgets {
		got := lineOf(t, status.Status{Budget: &status.BudgetStatus{PerHour: 100, Remaining: left}}, "Requests:")
		assert.Equal(t, told, len(got) == 1, "%d left: %v", left, got)
	}
	s := status.Status{Budget: &status.BudgetStatus{PerHour: 3600, Remaining: 12}}
	assert.Equal(t, []string{"12 of 3600 left this hour (requestsPerHour)"}, lineOf(t, s, "Requests:"))
}

func TestStatusHasEachNoteOnce(t *testing.T) {
	t.Parallel()
	both := []string{"x is newer by name than y", "its label says\x07 z"}
	s := status.Status{Images: []status.ImageStatus{
		{PodManifest: "a.yaml", Notes: both, Error: "away"},
		{PodManifest: "a.yaml", Container: "second", Notes: both[:1]},
		{PodManifest: "b.yaml", Notes: both[:1]},
	}}
	assert.Equal(t, []string{"away", both[0], "its label says� z"}, lineOf(t, s, "  a.yaml:"))
	assert.Equal(t, []string{both[0]}, lineOf(t, s, "  b.yaml:"))
}

// kolkata is half an hour beside the zones that a mistake would give.
func kolkata() *time.Location { return time.FixedZone("IST", 5*3600+1800) }

// aTime begins as every time does that a text of ours may have.
var aTime = regexp.MustCompile(`\d{4}-\d\d-\d\d(.\d\d:\d\d.{0,7})?`)

func assertOneZone(t *testing.T, text, name string) {
	t.Helper()
	for _, at := range aTime.FindAllString(text, -1) {
		assert.Regexp(t, `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d IST$`, at, name)
	}
}

func TestEveryPageHasItsTimesInOneZone(t *testing.T) {
	t.Parallel()
	for name, s := range pages() {
		assertOneZone(t, pageOf(t, s, 0, noon.In(kolkata()), false), name)
	}
	s := pages()["held"]
	s.PodManifests[1].Holds[0] = status.Hold{Name: status.HoldRefused, Reason: "x"}
	s.Reasons[1].Hold = status.HoldRefused
	s.Images[1].Notes = []string{"staging begins at 2026-11-21T13:00:00Z"}
	s.Images[1].Error = "x509: certificate has expired: current time 2026-11-21T11:00:00Z is after 2026-11-20T23:59:59Z"
	text := pageOf(t, s, 0, noon.In(kolkata()), false)
	assertOneZone(t, text, "notes")
	assert.Contains(t, text, "no changes before the holidays, until 2027-01-07 05:30:00 IST\n")
	assert.Contains(t, text, "staging begins at 2026-11-21 18:30:00 IST\n")
	assert.Contains(t, text, "is after 2026-11-21 05:29:59 IST\n", "others' words, too")
}

func TestLocalRegistry(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	served, away := noon.Add(3*time.Minute), noon.Add(-2*time.Minute)
	s := status.Status{State: status.StateStale, Since: noon, LocalRegistry: &localregistry.Status{
		Registries: []localregistry.RegistryStatus{
			{
				Registry: "registry.suse.com", Position: "fallback", Tags: make([]localregistry.ServedTag, 6), LastServed: &served,
				AwaySince: &away, Unanswered: []localregistry.UnservedTag{{
					Image: "registry.suse.com/private/db", Tag: "10.0-rev1", Reason: "private: the registry requires a login (localRegistry.private)",
				}},
			},
			{Registry: "registry.example.com", Position: "gate", Tags: make([]localregistry.ServedTag, 1)},
		},
		Error: "table of the local registry: no space left on device",
	}}
	var out bytes.Buffer
	require.NoError(t, Status(terminal.NewPage(&out, noon.Add(5*time.Minute)), s, false))
	text := out.String()
	for _, line := range []string{
		"Local:       fallback: ready for 6 tags on registry.suse.com",
		"last used at 2026-11-21 12:03",
		"registry does not answer, last answer at 2026-11-21 11:58",
		"1 tag not served",
		"gate: containers start the approved digests of 1 tag on registry.example.com",
		"not up to date: table of the local registry: no space left on device",
		"Not served by the local registry:\n  db:10.0-rev1: private: the registry requires a login",
	} {
		assert.Contains(t, text, line)
	}
	s.LocalRegistry.Down = "local registry at 127.0.0.1:334: connection refused"
	out.Reset()
	require.NoError(t, Status(terminal.NewPage(&out, noon.Add(5*time.Minute)), s, false))
	assert.Contains(t, out.String(), "does not answer, so containers need the registry to start: local registry at 127.0.0.1:334: connection refused")
	assert.NotContains(t, out.String(), ": ready for", "it is not")
	assert.NotContains(t, out.String(), "take what was approved")
	s.LocalRegistry = nil
	out.Reset()
	require.NoError(t, Status(terminal.NewPage(&out, noon), s, false))
	assert.NotContains(t, out.String(), "wn host")
}

// Pages go by kinds and fields: the agent's sentences are for people.
func TestPagesParseNoSentences(t *testing.T) {
	t.Parallel()
	reads := []string{
		"Contains", "ContainsAny", "Count", "Cut", "CutPrefix", "CutSuffix", "EqualFold", "Fields", "HasPrefix", "HasSuffix",
		"Index", "LastIndex", "Replace", "ReplaceAll", "Split", "SplitN", "SplitSeq", "TrimPrefix", "TrimSuffix",
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var found []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && slices.Contains(reads, call.Sel.Name) {
				if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "strings" {
					found = append(found, name+": "+call.Sel.Name)
				}
			}
			return true
		})
	}
	assert.Equal(t, []string{"outcomes.go: Cut"}, found, "pullsLine cuts the digest off a reference")
}
