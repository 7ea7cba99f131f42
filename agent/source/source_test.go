// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/tags"
)

const (
	velum = "r.io/caasp/velum"
	db    = "r.io/caasp/db"
	etcd  = "r.io/caasp/etcd"
)

// node asks a registry and keeps its answers.
type node struct {
	*agenttest.Registry
	*source.Asker
	t       *testing.T
	now     time.Time
	held    map[digest.Digest]bool
	running map[release.Question][]digest.Digest
}

// failures counts failed polls, by host and cause.
type failures map[string]int

func (f failures) Failed(host string, cause release.Cause) { f[host+" "+string(cause)]++ }

// newNode returns a node that follows 4.0.0-rev1 of velum and runs its first build.
func newNode(t *testing.T) (*node, release.Question) {
	t.Helper()
	n := &node{
		Registry: agenttest.NewRegistry(), t: t, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
		held: map[digest.Digest]bool{}, running: map[release.Question][]digest.Digest{},
	}
	n.Asker = &source.Asker{
		Source: n.Registry, Record: &record.Record{}, Meter: failures{}, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return n.now }, Jitter: func() float64 { return 0.5 }, Progress: &status.Reporter{},
		Policy: policy.Policy{ListEvery: 24 * time.Hour},
	}
	first := n.Release(velum, "4.0.0", 1, "1.1")
	q := asked(velum, "4.0.0-rev1")
	n.held[first.Digest] = true
	n.running[q] = []digest.Digest{first.Digest}
	n.ask(source.PollAll, q)
	n.Counts()
	return n, q
}

func asked(repository, tag string) release.Question {
	return release.Question{Repository: repository, Tag: tag, Convert: true}
}

// The refusals of one image by a registry's policy.
var (
	status403 = &release.SourceError{Host: "h", Status: 403, Refused: true, Err: errors.New("403 Forbidden")}
	status412 = &release.SourceError{Host: "h", Status: 412, Refused: true, Err: errors.New("412 Precondition Failed")}
)

// failOn makes the requests for one tag or digest fail.
func (n *node) failOn(suffix string, err error) {
	n.OnAsk = func(_, name string) {
		n.Down(nil)
		if strings.HasSuffix(name, suffix) {
			n.Down(err)
		}
	}
}

func (n *node) rule(r policy.Rule) { n.Policy.Rule = func(string) policy.Rule { return r } }

// ask asks questions in a new round.
func (n *node) ask(poll source.Poll, qs ...release.Question) map[release.Question]source.Offer {
	return n.askIn(n.t.Context(), poll, true, qs...)
}

func (n *node) askIn(ctx context.Context, poll source.Poll, confirm bool, qs ...release.Question) map[release.Question]source.Offer {
	return n.Ask(ctx, n.NewRound(poll, n.held, n.running), qs, confirm)
}

// catalog returns the node's catalog.
func (n *node) catalog() *agenttest.Catalog { return n.Catalog.(*agenttest.Catalog) }

// says describes an offer: the followed release, newer ones, refusals and errors.
func says(o source.Offer) string {
	out := []string{o.Follow.Name()}
	if o.Newest.Digest != o.Follow.Digest {
		out = append(out, "newest "+o.Newest.Name())
	}
	for _, no := range o.Refused {
		out = append(out, no.Tag+" "+no.Rule)
	}
	for _, c := range o.Newer {
		if c.Refusal != nil {
			out = append(out, c.Tag+" "+c.Refusal.Rule)
		}
	}
	out = append(out, o.Notes...)
	for _, n := range o.LooksNewer {
		out = append(out, "looks newer, but cannot be compared: "+n.String())
	}
	if o.Err != nil {
		out = append(out, o.Err.Error())
	}
	return strings.Join(out, "; ")
}

func scheme(t *testing.T, pattern string, prereleases bool) tags.Scheme {
	t.Helper()
	s, err := tags.NewScheme(pattern, tags.AnyVersions, prereleases)
	require.NoError(t, err)
	return s
}

// A pod manifest that is followed as written may name a long tag: its successor is the next build of its revision, and
// it does not wait for a floating tag.
func TestLongTagFollowedAsWritten(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule policy.Rule
		want string
	}{
		"none":    {policy.Rule{Updates: tags.Same}, "4.0.0-rev1-build1.1"},
		"rebuild": {policy.Rule{Updates: tags.Rebuild}, "4.0.0-rev1-build1.1; newest 4.0.0-rev1-build1.6"},
		"denied":  {policy.Rule{Updates: tags.Rebuild, Deny: []string{"*1.6"}}, "4.0.0-rev1-build1.1"},
	} {
		n, _ := newNode(t)
		n.rule(c.rule)
		n.Publish(velum, "4.0.0-rev1-build1.6")
		n.Publish(velum, "4.0.0-rev2", "4.0.0-rev2-build1.1")
		q := release.Question{Repository: velum, Tag: "4.0.0-rev1-build1.1"}
		assert.Equal(t, c.want, says(n.ask(source.PollAll, q)[q]), name)
	}
}

// The followed release, and newer ones.
func TestOffers(t *testing.T) {
	t.Parallel()
	long := "4.0.0-rev1-build1.1"
	for name, c := range map[string]struct {
		tag  string
		set  func(n *node)
		want string
	}{
		"nothing is new":       {"4.0.0-rev1", func(*node) {}, "4.0.0-rev1-build1.1"},
		"a rebuild":            {"4.0.0-rev1", func(n *node) { n.Release(velum, "4.0.0", 1, "1.2") }, "4.0.0-rev1-build1.2"},
		"a revision":           {"4.0.0-rev1", func(n *node) { n.Release(velum, "4.0.0", 2, "1.1") }, "4.0.0-rev1-build1.1; newest 4.0.0-rev2-build1.1"},
		"the rule refuses it":  {"4.0.0-rev1", func(n *node) { n.Release(velum, "4.0.0", 2, "1.1"); n.rule(policy.Rule{Updates: tags.Rebuild}) }, "4.0.0-rev1-build1.1"},
		"of a long tag":        {long, func(n *node) { n.Publish(velum, "4.0.0-rev1-build1.6"); n.rule(policy.Rule{Updates: tags.Rebuild}) }, "4.0.0-rev1-build1.1; 4.0.0-rev1-build1.6 publishing"},
		"of a short tag":       {"4.0.0", func(*node) {}, "4.0.0-rev1-build1.1"},
		"of a short tag alone": {"4.0.0", func(n *node) { n.Publish(velum, "4.0.0") }, "4.0.0; 4.0.0 kept: no intermediate tag has its digest"},
		"of a short tag ahead of its intermediate one": {"4.0.0", func(n *node) {
			n.ask(source.PollAll, asked(velum, "4.0.0"))
			n.Publish(velum, "4.0.0")
		}, "4.0.0-rev1-build1.1; 4.0.0 publishing"},
		"what is newer fails": {"4.0.0-rev1", func(n *node) {
			n.Release(velum, "4.0.0", 2, "1.1")
			n.OnAsk = func(_, name string) {
				if strings.HasSuffix(name, "rev2") {
					n.Down(errors.New("connection reset"))
				}
			}
		}, "4.0.0-rev1-build1.1; r.io/caasp/velum: upstream registry.test: connection reset"},
		"a rebuild without a list":     {"4.0.0-rev1", func(n *node) { n.Publish(velum, "4.0.0-rev1"); n.DownLists(errors.New("away")) }, "4.0.0-rev1; newer tags unknown, no tag list: r.io/caasp/velum: tag list: away"},
		"of a placeholder":             {"", func(n *node) { n.Release(velum, "4.0.0", 2, "1.1") }, "4.0.0-rev2-build1.1"},
		"of a placeholder, denied":     {"", func(n *node) { n.Release(velum, "4.0.0", 2, "1.1"); n.rule(policy.Rule{Deny: []string{"*rev2"}}) }, "4.0.0-rev1-build1.1"},
		"of a placeholder, all denied": {"", func(n *node) { n.rule(policy.Rule{Deny: []string{"*"}}) }, "4.0.0-rev1-build1.1"},
		"of its own precision": {"1.28", func(n *node) {
			n.Publish(velum, "1.28", "1.28.1")
			n.Publish(velum, "1.29", "1.29.0")
			n.Publish(velum, "1.28.9")
			n.rule(policy.Rule{Updates: tags.Minor})
		}, "1.28; newest 1.29; 1.28 kept: no intermediate tag has its digest; looks newer, but cannot be compared: 4.0.0 (3 numbers, and 1.28 has 2); looks newer, but cannot be compared: 4.0.0-rev1 (intermediate tag, and 1.28 is short); looks newer, but cannot be compared: 4.0.0-rev1-build1.1 (long tag, and 1.28 is short)"},
		"of a tag with a suffix": {"3.0.5-alpine", func(n *node) {
			n.Publish(velum, "3.0.5-alpine", "3.0-alpine", "3-alpine")
			n.Publish(velum, "3.1.1-alpine")
			n.Publish(velum, "3.1.2", "3.1.2-slim", "3.2.0-rc1-alpine")
			n.rule(policy.Rule{Updates: tags.Minor})
		}, "3.0.5-alpine; newest 3.1.1-alpine; looks newer, but cannot be compared: 3.1.2 (another name: {version}, and 3.0.5-alpine is {version}-alpine)" +
			"; looks newer, but cannot be compared: 3.1.2-slim (another name: {version}-slim, and 3.0.5-alpine is {version}-alpine)" +
			"; looks newer, but cannot be compared: 4.0.0 (another name: {version}, and 3.0.5-alpine is {version}-alpine)"},
		"of a tag with revision and build": {"v9.33.5-rke2r1-build20250910", func(n *node) {
			n.Publish(velum, "v9.33.5-rke2r1-build20250910")
			n.Publish(velum, "v9.33.5-rke2r1-build20250911", "v9.33.5-rke2r1")
			n.rule(policy.Rule{Updates: tags.Rebuild})
		}, "v9.33.5-rke2r1-build20250910; newest v9.33.5-rke2r1-build20250911"},
		"of a release, with pre-releases wanted": {"9.0.0", func(n *node) {
			n.Publish(velum, "9.0.0")
			n.Publish(velum, "9.1.0-rc.1")
			n.rule(policy.Rule{Updates: tags.Minor, Scheme: scheme(t, "", true)})
		}, "9.0.0; newest 9.1.0-rc.1; 9.0.0 kept: no intermediate tag has its digest"},
		"of a pre-release": {"9.0-rc3", func(n *node) {
			n.Publish(velum, "9.0-rc3")
			n.Publish(velum, "9.0", "9.0.0")
			n.Publish(velum, "9.1", "9.1.2")
			n.rule(policy.Rule{Updates: tags.Minor})
		}, "9.0-rc3; looks newer, but cannot be compared: 9.0.0 (3 numbers, and 9.0-rc3 has 2); looks newer, but cannot be compared: 9.1.2 (3 numbers, and 9.0-rc3 has 2)"},
		"of a placeholder, with a pattern": {"", func(n *node) {
			n.Publish(velum, "9.0.0-alpine3.19")
			n.Publish(velum, "9.1.0-alpine3.20", "9.1.0")
			n.Publish(velum, "9.2.0-rc1-alpine3.20")
			n.rule(policy.Rule{Scheme: scheme(t, "^(?P<version>.*)-alpine[0-9.]+$", false)})
		}, "9.1.0-alpine3.20"},
		"of an unrecognized tag":     {"latest", func(n *node) { n.Publish(velum, "latest") }, "latest"},
		"of a tag that is not there": {"4.0.0-rev9", func(*node) {}, "; r.io/caasp/velum: upstream registry.test: 4.0.0-rev9: not found"},
		"a digest that is not there": {"4.0.0-rev1", func(n *node) { n.Tag(velum, "4.0.0-rev1", "sha256:gone") }, "4.0.0-rev1-build1.1; r.io/caasp/velum:4.0.0-rev1 names a digest that the registry does not have: r.io/caasp/velum: upstream registry.test: sha256:gone: not found"},
		"of another platform":        {"4.0.0-rev1", func(n *node) { n.OtherPlatform(n.Release(velum, "4.0.0", 1, "1.2").Digest) }, "; r.io/caasp/velum@sha256:ce39ffac5e9b42556507f6cc49743aeff49e670bebf654cb1de25d3fd5f60ef9: not for this platform"},
		"newer of another platform": {"4.0.0-rev1", func(n *node) {
			n.Release(velum, "4.0.0", 2, "1.1")
			n.OtherPlatform(n.Release(velum, "4.0.0", 3, "1.1").Digest)
		}, "4.0.0-rev1-build1.1; newest 4.0.0-rev2-build1.1; 4.0.0-rev3 platform"},
		"newer and listed, but not there": {"4.0.0-rev1", func(n *node) { n.Tag(velum, "4.0.0-rev2", "sha256:gone") }, "4.0.0-rev1-build1.1; 4.0.0-rev2 missing"},
		// Harbor and Artifactory refuse one image by their policies, and a repository may have charts next to images.
		"newer and refused by the registry": {"4.0.0-rev1", func(n *node) {
			n.Release(velum, "4.0.0", 2, "1.1")
			n.Release(velum, "4.0.0", 3, "1.1")
			n.failOn("rev3", status412)
		}, "4.0.0-rev1-build1.1; newest 4.0.0-rev2-build1.1; 4.0.0-rev3 missing"},
		"newer, and its manifest refused by the registry": {"4.0.0-rev1", func(n *node) {
			n.Release(velum, "4.0.0", 2, "1.1")
			n.failOn(n.Release(velum, "4.0.0", 3, "1.1").Digest.String(), status403)
		}, "4.0.0-rev1-build1.1; newest 4.0.0-rev2-build1.1; 4.0.0-rev3 missing"},
		"newer, and no image": {"4.0.0-rev1", func(n *node) {
			n.Release(velum, "4.0.0", 2, "1.1")
			n.failOn(n.Release(velum, "4.0.0", 3, "1.1").Digest.String(), release.ErrNotImage)
		}, "4.0.0-rev1-build1.1; newest 4.0.0-rev2-build1.1; 4.0.0-rev3 missing"},
		"newer, and the registry is not asked": {"4.0.0-rev1", func(n *node) {
			n.Release(velum, "4.0.0", 2, "1.1")
			n.failOn("rev2", &release.SourceError{Host: "h", Status: 403, Unasked: true, Err: errors.New("403")})
		}, "4.0.0-rev1-build1.1; : upstream h: 403"},
		"a newer build refused by the registry": {"4.0.0-rev1", func(n *node) {
			n.Release(velum, "4.0.0", 1, "1.2")
			n.Publish(velum, "4.0.0-rev1-build1.3")
			n.failOn("build1.3", status412)
		}, "4.0.0-rev1-build1.2; 4.0.0-rev1-build1.3 publishing"},
		"of a placeholder, refused by the registry": {"", func(n *node) {
			n.Release(velum, "4.0.0", 2, "1.1")
			n.failOn("rev2", status412)
		}, "4.0.0-rev1-build1.1; 4.0.0-rev2 missing"},
		"of a placeholder, everything refused by the registry": {"", func(n *node) {
			n.failOn("rev1", status412)
			n.Retract(velum, "4.0.0")
		}, "; : upstream h: 412 Precondition Failed"},
		"a rebuild of what the registry refuses": {"4.0.0-rev1", func(n *node) {
			running := n.running[asked(velum, "4.0.0-rev1")][0]
			n.Record.Releases.Delete(release.Key(velum, running))
			n.Release(velum, "4.0.0", 1, "1.2")
			n.failOn(running.String(), status412)
		}, "4.0.0-rev1-build1.2"},
		"refused by the registry": {"4.0.0-rev1", func(n *node) { n.failOn("rev1", status412) }, "4.0.0-rev1-build1.1; : upstream h: 412 Precondition Failed"},
		"newer and denied": {"4.0.0-rev1", func(n *node) {
			bad := n.Release(velum, "4.0.0", 2, "1.1")
			n.Record.Denied.Set(release.Key(velum, bad.Digest), record.Denial{})
		}, "4.0.0-rev1-build1.1"},
		"a build that the tag does not name yet": {"4.0.0-rev1", func(n *node) { n.Publish(velum, "4.0.0-rev1-build1.6") }, "4.0.0-rev1-build1.1; 4.0.0-rev1-build1.6 publishing"},
		"and something newer":                    {"4.0.0-rev1", func(n *node) { n.Publish(velum, "4.0.0-rev1-build1.6"); n.Release(velum, "4.0.0", 2, "1.1") }, "4.0.0-rev1-build1.1; newest 4.0.0-rev2-build1.1"},
		"a build that has failed": {"4.0.0-rev1", func(n *node) {
			bad := n.Publish(velum, "4.0.0-rev1-build1.6")
			n.Record.Denied.Set(release.Key(velum, bad.Digest), record.Denial{Name: "4.0.0-rev1-build1.6"})
		}, "4.0.0-rev1-build1.1"},
		"of another application": {"4.0.0-rev1", func(n *node) {
			n.PublishBuild(velum, release.Build{Config: "sha256:c", Origin: "caasp/v4/grafana"}, "4.0.0-rev2")
		}, "4.0.0-rev1-build1.1"},
		"not understood": {"4.0.0-rev1", func(n *node) {
			n.Publish(velum, "4.0.0-rev02", "4.0.0-rev1-alpine")
			n.rule(policy.Rule{Updates: tags.Major})
		}, "4.0.0-rev1-build1.1; looks newer, but cannot be compared: 4.0.0-rev02 (leading zero in revision)"},
		"not understood, and something newer": {"4.0.0-rev1", func(n *node) { n.Publish(velum, "4.0.0-rev02"); n.Release(velum, "4.0.0", 3, "1.1") }, "4.0.0-rev1-build1.1; newest 4.0.0-rev3-build1.1"},
		"dates and hashes": {"4.0.0-rev1", func(n *node) {
			n.Publish(velum, "20240115", "1234567", "20240115-rev1", "4.0.0-rev20240115", "v20240115", "2024-01-15")
			n.rule(policy.Rule{Updates: tags.Major})
		}, "4.0.0-rev1-build1.1"},
		"an old line": {"4.0.0-rev1", func(n *node) {
			for minor := range 700 {
				n.Release(velum, fmt.Sprintf("5.%d.0", minor), 1, "1.1")
			}
			n.Release(velum, "4.0.0", 2, "1.1")
		}, "4.0.0-rev1-build1.1; newest 4.0.0-rev2-build1.1"},
		"without a list":               {"4.0.0-rev1", func(n *node) { n.DownLists(errors.New("away")) }, "4.0.0-rev1-build1.1; newer tags unknown, no tag list: r.io/caasp/velum: tag list: away"},
		"without a list, for rebuilds": {"4.0.0-rev1", func(n *node) { n.DownLists(errors.New("away")); n.rule(policy.Rule{Updates: tags.Rebuild}) }, "4.0.0-rev1-build1.1"},
		"a short tag without a list":   {"4.0.0", func(n *node) { n.DownLists(errors.New("away")) }, "4.0.0-rev1-build1.1; newer tags unknown, no tag list: r.io/caasp/velum: tag list: away"},
		"a host without lists":         {"4.0.0-rev1", func(n *node) { n.DownLists(&release.SourceError{Host: "h", Status: 403, Err: errors.New("403")}) }, "4.0.0-rev1-build1.1; newer tags unknown, no tag list: : upstream h: 403"},
		"an old list": {"4.0.0-rev1", func(n *node) {
			n.Release(velum, "4.0.0", 2, "1.1")
			n.ask(source.PollAll, asked(velum, "4.0.0-rev1"))
			n.DownLists(errors.New("away"))
		}, "4.0.0-rev1-build1.1; newest 4.0.0-rev2-build1.1; newer tags unknown, no tag list: r.io/caasp/velum: tag list: away"},
		"away": {"4.0.0-rev1", func(n *node) { n.Down(agenttest.ErrRefused) }, "4.0.0-rev1-build1.1; r.io/caasp/velum: upstream registry.test: connection refused"},
	} {
		n, _ := newNode(t)
		c.set(n)
		q := asked(velum, c.tag)
		assert.Equal(t, c.want, says(n.ask(source.PollAll, q)[q]), name)
	}
}

// What looks newer stays noted while the list is not asked again, also among many higher tags.
func TestWhatLooksNewerStaysNoted(t *testing.T) {
	t.Parallel()
	n, _ := newNode(t)
	n.rule(policy.Rule{Updates: tags.Revision})
	n.Publish(db, "1.0.0-acme1", "1.0.0-acme2", "1.0.0-rev02")
	for minor := range 100 {
		n.Publish(db, fmt.Sprintf("5.%d.0-other", minor), fmt.Sprintf("6.%d.0-rev01", minor))
	}
	q := asked(db, "1.0.0-acme1")
	first := says(n.ask(source.PollAll, q)[q])
	assert.True(t, strings.HasPrefix(first, "1.0.0-acme1; looks newer, but cannot be compared: 1.0.0-acme2 (another name: "+
		"{version}-acme2, and 1.0.0-acme1 is {version}-acme1; tags.pattern '^(?P<version>.*)-acme(?P<rev>[0-9.]+)$' orders it); "+
		"looks newer, but cannot be compared: 5.0.0-other"), first)
	n.now = n.now.Add(time.Hour)
	assert.Equal(t, first, says(n.ask(source.PollDue, q)[q]))
	lists := n.Counts().Lists
	assert.Equal(t, 1, lists)
}

// The tags beside one without an order are listed if a pattern could order them, and kept for the proposal. A tag
// without numbers needs no list.
func TestPatternIsTriedOnTheList(t *testing.T) {
	t.Parallel()
	n, _ := newNode(t)
	n.Publish(db, "2025-06-14T10-11-12-1a2b3c4", "2025-06-15T09-00-00-9f8e7d6", "latest", "5.0.0")
	q, latest := asked(db, "2025-06-14T10-11-12-1a2b3c4"), asked(db, "latest")
	n.Counts()
	n.ask(source.PollDue, latest)
	assert.Zero(t, n.Counts().Lists)
	n.ask(source.PollDue, q)
	list := n.Record.Lists[db]
	assert.NotEmpty(t, tags.PatternFor(q.Tag, slices.Concat(list.Tags, list.Unread)))
}

// A release that is newer by name and older by time is passed over for the newest one that does not contradict itself,
// and named. If there is no other, it is left to a person.
func TestOddOldTagIsPassedOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		built []string // tag and year
		rule  policy.Rule
		want  string
	}{
		"an old scheme": {
			[]string{"20.04.1 2020", "14.3.9 2019", "5.2.3 2025", "5.2.4 2026", "6.0.0 2024"},
			policy.Rule{Updates: tags.Major},
			"5.2.3; newest 5.2.4",
		},
		"and a newer major": {
			[]string{"20.04.1 2020", "5.2.3 2025", "5.2.4 2025", "6.0.0 2026"}, policy.Rule{Updates: tags.Major}, "5.2.3; newest 6.0.0",
		},
		"nothing else is newer": {
			[]string{"20.04.1 2020", "14.3.9 2019", "5.2.3 2025"}, policy.Rule{Updates: tags.Major}, "5.2.3; newest 20.04.1",
		},
		"older releases are allowed": {
			[]string{"20.04.1 2020", "5.2.3 2025", "5.2.4 2026"}, policy.Rule{Updates: tags.Major, Older: true}, "5.2.3; newest 20.04.1",
		},
		"a time that is no evidence": {
			[]string{"20.04.1 1980", "5.2.3 2025", "5.2.4 2026"}, policy.Rule{Updates: tags.Major}, "5.2.3; newest 20.04.1",
		},
	} {
		n, _ := newNode(t)
		n.now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
		n.rule(c.rule)
		for _, text := range c.built {
			tag, year, _ := strings.Cut(text, " ")
			at, err := time.Parse("2006", year)
			require.NoError(t, err)
			n.PublishBuild(db, release.Build{Config: digest.FromString(tag), Size: 1, Created: at}, tag)
		}
		q := asked(db, "5.2.3")
		o := n.ask(source.PollAll, q)[q]
		o.Notes, o.LooksNewer = nil, nil
		assert.Equal(t, c.want, says(o), name)
		if chosen := o.Choose(c.rule, n.now, n.refusesNothing); name == "an old scheme" {
			assert.Equal(t, []string{
				"20.04.1 is newer by name than 5.2.3, but was created earlier (2020-01-01T00:00:00Z, 2025-01-01T00:00:00Z)",
				"14.3.9 is newer by name than 5.2.3, but was created earlier (2019-01-01T00:00:00Z, 2025-01-01T00:00:00Z)",
				"6.0.0 is newer by name than 5.2.3, but was created earlier (2024-01-01T00:00:00Z, 2025-01-01T00:00:00Z)",
			}, chosen.Notes)
		}
	}
}

func (n *node) refusesNothing(release.Release) (policy.Refusal, bool) { return policy.Refusal{}, false }

// A digest that is new to the node is read again, until two readings agree.
func TestSecondReading(t *testing.T) {
	t.Parallel()
	rebuild := func(n *node) { n.Release(velum, "4.0.0", 1, "1.2") }
	revision := func(n *node) { n.Release(velum, "4.0.0", 2, "1.1") }
	interrupted := map[string]func(*node){"4.0.0-rev1-build1.2": rebuild, "4.0.0-rev1-build1.1; newest 4.0.0-rev2-build1.1": revision}
	for name, c := range map[string]struct {
		before    func(n *node)
		meanwhile func(n *node, at int)
		want      string
		took      time.Duration
		failures  int
	}{
		"nothing is new": {func(*node) {}, nil, "4.0.0-rev1-build1.1", 0, 0},
		"on the node":    {func(n *node) { *n.Record = record.Record{} }, nil, "4.0.0-rev1-build1.1", 0, 0},
		"a rebuild":      {rebuild, nil, "4.0.0-rev1-build1.2", 30 * time.Second, 0},
		"a revision":     {revision, nil, "4.0.0-rev1-build1.1; newest 4.0.0-rev2-build1.1", 30 * time.Second, 0},
		"a momentary digest": {func(n *node) { n.Publish(velum, "4.0.0-rev1") }, func(n *node, _ int) {
			for d := range n.held {
				n.Tag(velum, "4.0.0-rev1", d)
			}
		}, "4.0.0-rev1-build1.1", 30 * time.Second, 0},
		"a mirror lags behind for a moment": {func(n *node) {
			n.Release(velum, "4.0.0", 1, "1.2")
			n.Policy.ConfirmAfter = 0
			n.ask(source.PollAll, asked(velum, "4.0.0-rev1"))
			n.Policy.ConfirmAfter = 30 * time.Second
			for d := range n.held {
				n.Tag(velum, "4.0.0-rev1", d)
			}
		}, func(n *node, _ int) { n.Tag(velum, "4.0.0-rev1", n.Record.Offers[velum+":4.0.0-rev1"].Follow.Digest) }, "4.0.0-rev1-build1.2", 30 * time.Second, 0},
		"the tag vanishes": {rebuild, func(n *node, _ int) { n.Retract(velum, "4.0.0-rev1") }, "; r.io/caasp/velum: upstream registry.test: 4.0.0-rev1: not found", 30 * time.Second, 0},
		"it moves once": {rebuild, func(n *node, at int) {
			if at == 1 {
				n.Release(velum, "4.0.0", 1, "1.3")
			}
		}, "4.0.0-rev1", time.Minute, 0},
		"it moves on and on":          {rebuild, func(n *node, at int) { n.Release(velum, "4.0.0", 1, fmt.Sprint("2.", at)) }, "4.0.0-rev1-build1.1; r.io/caasp/velum:4.0.0-rev1: named another digest each of the 4 times it was read", 90 * time.Second, 1},
		"a newer one moves and moves": {revision, func(n *node, at int) { n.Release(velum, "4.0.0", 2, fmt.Sprint("2.", at)) }, "4.0.0-rev1-build1.1; 4.0.0-rev2 confirmAfter", 90 * time.Second, 0},
		"the registry goes away":      {rebuild, func(n *node, _ int) { n.Down(agenttest.ErrRefused) }, "4.0.0-rev1-build1.1; r.io/caasp/velum: upstream registry.test: connection refused", 30 * time.Second, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, q := newNode(t)
			n.Policy.ConfirmAfter = 30 * time.Second
			c.before(n)
			at := 0
			n.Progress = &status.Reporter{To: func(p status.Progress) {
				if p.Ended == status.PhaseConfirming && c.meanwhile != nil {
					at++
					c.meanwhile(n, at)
				}
			}}
			began := time.Now()
			assert.Equal(t, c.want, says(n.ask(source.PollAll, q)[q]), name)
			assert.Equal(t, c.took, time.Since(began), name)
			assert.Equal(t, c.failures, n.Record.Sources[velum].Failures, name)
			began = time.Now()
			if c.meanwhile == nil {
				n.ask(source.PollAll, q)
				assert.Zero(t, time.Since(began), "%s: what was read twice is not read again", name)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		n, q := newNode(t)
		n.Policy.ConfirmAfter = 30 * time.Second
		rebuild(n)
		began := time.Now()
		n.askIn(t.Context(), source.PollAll, false, q)
		assert.Zero(t, time.Since(began), "a plan does not wait")
	})
	for want, before := range interrupted {
		synctest.Test(t, func(t *testing.T) {
			n, q := newNode(t)
			n.Policy.ConfirmAfter = 30 * time.Second
			before(n)
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			assert.Equal(t, "4.0.0-rev1-build1.1", says(n.askIn(ctx, source.PollAll, true, q)[q]), "an interruption is no answer")
			assert.Zero(t, n.Record.Sources[velum].Failures)
			began := time.Now()
			assert.Equal(t, want, says(n.ask(source.PollAll, q)[q]))
			assert.Equal(t, 30*time.Second, time.Since(began), "the next one reads twice")
		})
	}
}

// An unstable tag or a failing source does not affect others.
func TestSourcesOfARound(t *testing.T) {
	t.Parallel()
	n, q := newNode(t)
	other, second := asked(db, "10.0-rev1"), asked(velum, "4.0.0-rev2")
	n.Release(db, "10.0", 1, "1.1")
	n.Release(velum, "4.0.0", 2, "1.1")
	var order []string
	fails := func(repository string, err error) { // only requests for these fail
		n.OnAsk = func(_, name string) {
			order = append(order, name)
			n.Down(map[bool]error{true: err}[strings.HasPrefix(name, repository)])
		}
	}
	fails(velum+":4.0.0-rev1", agenttest.ErrRefused)
	n.ask(source.PollDue, q, second, other)
	assert.Equal(t, 1, n.Record.Sources[velum].Failures, "once a round, if any of its tags does")
	assert.Equal(t, failures{agenttest.Host + " other": 1}, n.Meter)
	assert.Zero(t, n.Record.Sources[db].Failures)
	assert.Equal(t, n.Now(), n.Record.Sources[db].LastSuccess)
	at := n.Record.Sources[velum].RetryAt
	assert.Equal(t, []time.Time{at}, source.Retries(n.Record, n.Now()))
	fails(velum, nil)
	n.Counts()
	n.ask(source.PollFailed, q, second, other)
	assert.Zero(t, n.Counts(), "not before its back-off")
	last := n.Record.LastCheck
	n.now = n.now.Add(time.Second)
	n.ask(source.PollNone, q, second, other)
	assert.Equal(t, last, n.Record.LastCheck, "an observation is no check")
	fails(velum, &release.SourceError{Repository: velum, Host: "h", Unasked: true, Err: errors.New("left alone")})
	n.ask(source.PollDue, q, second, other)
	assert.Equal(t, 1, n.Record.Sources[velum].Failures, "what was not asked has not failed again")
	assert.Contains(t, n.Record.Sources[velum].Error, "left alone")
	fails(velum, nil)
	n.now, order = n.now.Add(time.Hour), nil
	n.ask(source.PollFailed, q, second, other)
	assert.NotContains(t, order, db+":10.0-rev1", "only what failed is asked again")
	assert.Zero(t, n.Record.Sources[velum].Failures)

	n.NotePage(velum, errors.New("a login page"))
	assert.Equal(t, release.CauseNoRegistry, n.Record.Sources[velum].Cause)
	order = nil
	n.ask(source.PollDue, q, second, other)
	assert.Equal(t, db+":10.0-rev1", order[0], "the one that failed least is asked first")

	n.OnAsk, n.Meter = nil, failures{}
	for _, err := range []error{
		agenttest.ErrRefused, &release.SourceError{Host: "r1:5000", Cause: release.CauseTLS, Err: errors.New("x")},
		&release.SourceError{Unasked: true, Cause: release.CauseUnasked, Err: errors.New("x")},
	} {
		n.Down(err)
		n.askIn(t.Context(), source.PollAll, false, q) // a plan only reads
		n.ask(source.PollNone, q)
		n.ask(source.PollAll, q)
	}
	assert.Equal(t, failures{agenttest.Host + " other": 1, "r1:5000 tls": 1, " unasked": 1}, n.Meter)
	n.Down(nil)
	foreign := asked(etcd, "1.0-rev1")
	n.OtherPlatform(n.Release(etcd, "1.0", 1, "1.1").Digest)
	o := n.ask(source.PollDue, foreign)[foreign]
	require.ErrorIs(t, o.Err, release.ErrPlatform)
	assert.Zero(t, n.Record.Sources[etcd].Failures, "it did answer")
	assert.Equal(t, says(o), says(n.ask(source.PollNone, foreign)[foreign]), "as the record says")
}

// Candidates are requested one by one, and limited in number.
func TestRequests(t *testing.T) {
	t.Parallel()
	n, q := newNode(t)
	counts := func(want agenttest.Counts, poll source.Poll, why string) {
		t.Helper()
		n.ask(poll, q)
		assert.Equal(t, want, n.Counts(), why)
	}
	counts(agenttest.Counts{Heads: 1}, source.PollDue, "a steady poll")
	counts(agenttest.Counts{}, source.PollNone, "looking asks nothing")
	counts(agenttest.Counts{Heads: 1, Lists: 1}, source.PollAll, "a person asks")
	n.now = n.now.Add(24 * time.Hour)
	counts(agenttest.Counts{Heads: 1, Lists: 1}, source.PollDue, "the daily list")
	n.now = n.now.Add(-1000 * time.Hour)
	counts(agenttest.Counts{Heads: 1, Lists: 1}, source.PollDue, "the clock was wrong")
	n.Release(velum, "4.0.0", 1, "1.2")
	counts(agenttest.Counts{Heads: 2, Lists: 1, Describes: 1}, source.PollDue, "a rebuild: its long tag, its description")
	counts(agenttest.Counts{Heads: 1}, source.PollDue, "an offer that waits costs nothing more")
	late := n.Publish(velum, "4.0.0", "4.0.0-rev1")
	n.ask(source.PollDue, q)
	n.Tag(velum, "4.0.0-rev1-build1.3", late.Digest)
	assert.Equal(t, "4.0.0-rev1", says(n.ask(source.PollDue, q)[q]), "a late long tag is not found before the next list")
	assert.Equal(t, "4.0.0-rev1-build1.3", says(n.ask(source.PollAll, q)[q]))
	n.Counts()

	n, q = newNode(t)
	for rev := 2; rev <= 30; rev++ {
		n.OtherPlatform(n.Release(velum, "4.0.0", rev, "1.1").Digest)
	}
	assert.Equal(t, 8, strings.Count(says(n.ask(source.PollAll, q)[q]), policy.RulePlatform), "eight candidates")
	n, _ = newNode(t)
	for rev := range 50 {
		n.Publish(velum, fmt.Sprintf("4.0.0-rev%d", rev), fmt.Sprintf("4.0.0-rev%d-build1.1", rev))
	}
	n.Publish(velum, "4.0.0")
	q = asked(velum, "4.0.0")
	counts(agenttest.Counts{Heads: 1 + 8 + 8, Lists: 1, Describes: 1}, source.PollDue, "eight intermediate and eight long tags")
	counts(agenttest.Counts{Heads: 1}, source.PollDue, "not looked for again in the same list")
	for major := range 1000 {
		n.Release(velum, fmt.Sprintf("5.%d.0", major), 1, "1.1")
	}
	q = asked(velum, "4.0.0-rev1")
	before := says(n.ask(source.PollAll, q)[q])
	assert.Contains(t, before, "newest 4.0.0-rev49-build1.1")
	assert.Less(t, len(n.Record.Lists[velum].Tags), 100, "the record stays small")
	n.Counts()
	assert.Equal(t, before, says(n.ask(source.PollDue, q)[q]), "and is enough")
	assert.Zero(t, n.Counts().Lists)
}

// The rules have changed: tags that they now allow are requested soon, once, by each node at its own time.
func TestChangedRules(t *testing.T) {
	t.Parallel()
	n, q := newNode(t)
	n.Release(velum, "4.0.1", 1, "1.1")
	n.ask(source.PollAll, q)
	obey := func(updates tags.Change) []time.Time {
		n.rule(policy.Rule{Updates: updates})
		n.ask(source.PollNone, q)
		n.Counts()
		return source.Retries(n.Record, n.Now())
	}
	assert.Equal(t, []time.Time{n.Now().Add(5 * time.Minute)}, obey(tags.Patch))
	n.now = n.now.Add(5*time.Minute - time.Second)
	n.ask(source.PollFailed, q)
	assert.Zero(t, n.Counts())
	n.now = n.now.Add(time.Second)
	assert.Contains(t, says(n.ask(source.PollFailed, q)[q]), "newest 4.0.1-rev1-build1.1")
	assert.Empty(t, source.Retries(n.Record, n.Now()))
	n.Counts()
	n.now = n.now.Add(time.Hour)
	n.ask(source.PollFailed, q)
	assert.Zero(t, n.Counts(), "once")
	obey(tags.Revision)
	assert.Empty(t, obey(tags.Patch), "they are as they were")

	obey(tags.Rebuild)
	n.now = n.now.Add(-1000 * time.Hour)
	assert.Equal(t, []time.Time{n.Now()}, source.Retries(n.Record, n.Now()), "the clock was wrong")
	n.Down(agenttest.ErrRefused)
	n.ask(source.PollFailed, q)
	assert.Equal(t, []time.Time{n.Record.Sources[velum].RetryAt}, source.Retries(n.Record, n.Now()), "the back-off of its source is enough")

	n, q = newNode(t)
	n.rule(policy.Rule{Updates: tags.Rebuild})
	for patch := range 20 {
		n.Publish(velum, fmt.Sprintf("5.0.%d-rev1", patch))
	}
	n.Release(velum, "4.0.0", 2, "2.1")
	n.ask(source.PollAll, q)
	obey(tags.Revision)
	n.now = n.now.Add(10 * time.Minute)
	assert.Contains(t, says(n.ask(source.PollFailed, q)[q]), "newest 4.0.0-rev2-build2.1", "a trimmed list is asked for again")
}

// The intermediate tag of a short one is searched until it is found, and again after it is gone.
func TestIntermediateTag(t *testing.T) {
	t.Parallel()
	n, _ := newNode(t)
	n.Release(velum, "4.0.0", 2, "1.1")
	n.Release(velum, "4.0.0", 3, "1.1")
	n.Release(velum, "3.9.0", 7, "1.1")
	n.Publish(velum, "5.0.0", "stable", "5.0.0-rev1-build1.1")
	n.rule(policy.Rule{Updates: tags.Rebuild})
	for tag, want := range map[string]string{
		"": "4.0.0-rev3", "4.0.0-rev2": "", "4.0.0": "4.0.0-rev3", "3.9.0": "3.9.0-rev7", "4.0.0-rev2-build1.1": "4.0.0-rev2",
		"stable": "", "5.0.0": "", "5.0.0-rev1-build1.1": "",
	} {
		q := asked(velum, tag)
		assert.Equal(t, cmp.Or(want, tag), n.ask(source.PollAll, q)[q].Follow.Tag, tag)
	}

	n, _ = newNode(t)
	q := asked(velum, "4.0.0")
	follows := func(want string) {
		t.Helper()
		assert.Equal(t, want, n.ask(source.PollDue, q)[q].Follow.Tag)
	}
	follows("4.0.0-rev1")
	n.Counts()
	follows("4.0.0-rev1")
	assert.Equal(t, agenttest.Counts{Heads: 2}, n.Counts(), "both tags matter")
	n.Retract(velum, "4.0.0-rev1")
	follows("4.0.0")
	n.Release(velum, "4.0.0", 1, "1.2")
	follows("4.0.0-rev1")
	n.Tag(velum, "4.0.0-rev1", n.Release(velum, "4.0.0", 2, "1.1").Digest)
	follows("4.0.0-rev2")
	n.Retract(velum, "4.0.0-rev2")
	follows("4.0.0-rev1")
	next := n.Publish(velum, "4.0.0")
	follows("4.0.0-rev1")
	n.Tag(velum, "4.0.0-rev1", next.Digest)
	assert.Equal(t, next.Digest, n.ask(source.PollDue, q)[q].Follow.Digest)
}

// A new tag does not replace kubeadm upgrade: the newest patch is found, however many minor versions are above it.
func TestKubeadm(t *testing.T) {
	t.Parallel()
	n, _ := newNode(t)
	q := asked(velum, "v1.34.0")
	q.Kubeadm = true
	for patch := range 10 {
		n.Publish(velum, fmt.Sprintf("v1.34.%d", patch))
	}
	n.Publish(velum, "v1.35.0")
	for patch := range 30 {
		n.Publish(velum, fmt.Sprintf("v1.36.%d", patch))
	}
	for allowed, want := range map[string]string{"": "v1.34.9", "v1.35.*": "v1.35.0", "v1.34.*": "v1.34.9"} {
		r := policy.Rule{Updates: tags.Minor}
		if allowed != "" {
			r.Allow = []string{allowed}
		}
		n.rule(r)
		for _, poll := range []source.Poll{source.PollAll, source.PollDue} { // the second answer comes from the kept tags
			assert.Equal(t, want, n.ask(poll, q)[q].Newest.Tag, allowed)
		}
		assert.Equal(t, "v1.36.29", n.ask(source.PollDue, q)[q].Newer[0].Tag, "it is named")
	}
}

// A host that serves no lists has not failed; the time since when is recorded.
func TestHostWithoutTagLists(t *testing.T) {
	t.Parallel()
	for code := 401; code <= 405; code++ {
		n, q := newNode(t)
		since := n.Now()
		n.DownLists(&release.SourceError{Host: "h", Status: code, Cause: release.CauseAuth, Err: errors.New("no list")})
		for range 2 {
			assert.Equal(t, &record.NoList{Host: "h", HTTPStatus: code, Cause: release.CauseAuth, Error: ": upstream h: no list", Since: since},
				n.ask(source.PollAll, q)[q].NoList)
			assert.Zero(t, n.Record.Sources[velum].Failures)
			n.now = n.now.Add(time.Hour)
		}
		n.Counts()
		n.ask(source.PollDue, q)
		assert.Equal(t, agenttest.Counts{Heads: 1}, n.Counts(), "its refusal is remembered")
		n.DownLists(nil)
		assert.Nil(t, n.ask(source.PollAll, q)[q].NoList)
	}
}

// A warning names an old list only where it is used.
func TestOldTagListIsReported(t *testing.T) {
	t.Parallel()
	n, q := newNode(t)
	log := &bytes.Buffer{}
	n.Log = slog.New(slog.NewTextHandler(log, nil))
	n.now = n.now.Add(25 * time.Hour)
	n.ask(source.PollAll, q)
	require.Equal(t, 1, n.Counts().Lists, "the list is read again")
	assert.NotContains(t, log.String(), "using an old tag list")
	n.DownLists(errors.New("away"))
	n.now = n.now.Add(25 * time.Hour)
	n.ask(source.PollAll, q)
	assert.Contains(t, log.String(), "using an old tag list")
	assert.Contains(t, log.String(), "away")
}

// A person's request interrupts a poll, whose answers are reused when it is resumed.
func TestResumedRound(t *testing.T) {
	t.Parallel()
	n, q := newNode(t)
	other := asked(db, "10.0-rev1")
	n.Release(db, "10.0", 1, "1.1")
	ctx, stop := context.WithCancelCause(t.Context())
	n.OnAsk = func(_, name string) {
		if name == velum+":4.0.0-rev1" {
			stop(source.ErrPersonFirst)
		}
	}
	round := n.NewRound(source.PollDue, n.held, n.running)
	assert.Nil(t, n.Ask(ctx, round, []release.Question{other, q}, true))
	assert.Zero(t, n.Record.Sources[velum].Failures, "it has not failed")
	n.OnAsk = nil
	n.Counts()
	next := n.NewRound(source.PollDue, n.held, n.running)
	next.Resume(round)
	out := n.Ask(t.Context(), next, []release.Question{q, other}, true)
	assert.Equal(t, "10.0-rev1-build1.1", says(out[other]))
	assert.Equal(t, 1, n.Counts().Heads, "only what was interrupted is asked for again")
	n.now = n.now.Add(time.Hour)
	gone, leave := context.WithCancel(t.Context())
	n.OnAsk = func(_, name string) {
		if name == velum+":4.0.0-rev1" {
			leave()
		}
	}
	rebuilt := n.Release(db, "10.0", 1, "1.2")
	out = n.askIn(gone, source.PollDue, true, other, q)
	assert.Equal(t, rebuilt.Digest, out[other].Follow.Digest, "a poll that is stopped keeps its answers")
	require.NoError(t, out[q].Err, "it is no failure")
	n.OnAsk = nil
	n.Counts()
	late := n.NewRound(source.PollDue, n.held, n.running)
	late.Resume(next)
	n.Ask(t.Context(), late, []release.Question{q, other}, true)
	assert.Equal(t, 2, n.Counts().Heads, "an old round does not count")
}

// New offers wait for this node's turn, unless a person requests them.
func TestStageFrom(t *testing.T) {
	t.Parallel()
	n, q := newNode(t)
	n.Policy.StageDelay = time.Hour
	n.Release(velum, "4.0.0", 1, "1.2")
	at := n.Now().Add(time.Hour)
	assert.Equal(t, at, n.ask(source.PollDue, q)[q].StageFrom)
	n.now = n.now.Add(time.Minute)
	assert.Equal(t, at, n.ask(source.PollDue, q)[q].StageFrom, "another poll does not move it")
	assert.Zero(t, n.ask(source.PollAll, q)[q].StageFrom)
}

// A catalog answers for the repositories that it lists.
func TestCatalog(t *testing.T) {
	t.Parallel()
	list := func(n *node, builds ...string) map[string]release.Release {
		out := map[string]release.Release{}
		for _, b := range builds {
			out[b] = n.Publish(velum, "4.0.0-rev1-build"+b)
			n.catalog().Publish(velum, agenttest.ListedAs(out[b]))
		}
		return out
	}
	for name, c := range map[string]struct {
		tag  string
		set  func(n *node)
		want string
	}{
		"the newest under the tag": {"4.0.0-rev1", func(n *node) { list(n, "1.1", "1.2") }, "4.0.0-rev1-build1.2"},
		"the mirror lacks it":      {"4.0.0-rev1", func(n *node) { n.Vanish(velum, list(n, "1.1", "1.2")["1.2"].Digest) }, "4.0.0-rev1-build1.1; 4.0.0-rev1-build1.2 missing"},
		"it is withdrawn":          {"4.0.0-rev1", func(n *node) { n.catalog().Withdraw(list(n, "1.1", "1.2")["1.2"], "broken", "") }, "4.0.0-rev1-build1.1"},
		"never read":               {"4.0.0-rev1", func(n *node) { n.catalog().Fail(agenttest.ErrRefused) }, "; not asked yet"},
		"needs a newer agent": {"4.0.0-rev1", func(n *node) {
			n.catalog().Update(list(n, "1.1", "1.2")["1.2"], func(l *format.Release) { l.Critical = []string{"cpu"} })
		}, "4.0.0-rev1-build1.1"},
		"the promoted one for a new pod": {"3.0.0-rev1", func(n *node) { list(n, "1.1"); n.rule(policy.Rule{Updates: tags.Major}) }, "4.0.0-rev1-build1.1"},
		"what runs, and is not listed any more": {"3.0.0-rev1", func(n *node) {
			list(n, "1.1")
			n.rule(policy.Rule{Updates: tags.Major})
			n.running = map[release.Question][]digest.Digest{asked(velum, "3.0.0-rev1"): {n.Publish(velum, "3.0.0-rev1").Digest}}
		}, "3.0.0-rev1; newest 4.0.0-rev1-build1.1"},
		"no release of the tag": {"3.0.0-rev1", func(n *node) { list(n, "1.1") }, "; registry.test/catalog:prod: r.io/caasp/velum:3.0.0-rev1: not in the catalog"},
		"not listed":            {"4.0.0-rev1", func(n *node) { n.catalog().Publish(db, format.Release{Tag: "1.0-rev1-build1.1", Digest: "sha256:d"}) }, "4.0.0-rev1-build1.1"},
		"not listed, and only that": {"4.0.0-rev1", func(n *node) {
			n.catalog().Publish(db, format.Release{Tag: "1.0-rev1-build1.1", Digest: "sha256:d"})
			n.Policy.Catalog.OnlyListed = true
		}, "; registry.test/catalog:prod: r.io/caasp/velum: not in the catalog"},
	} {
		n, _ := newNode(t)
		*n.Record, n.running = record.Record{}, nil
		n.Catalog = agenttest.NewCatalog()
		c.set(n)
		q := asked(velum, c.tag)
		n.Counts()
		assert.Equal(t, c.want, says(n.ask(source.PollAll, q)[q]), name)
		if name == "never read" {
			assert.Zero(t, n.Counts(), "a tag may name what is not promoted")
		}
	}

	n, q := newNode(t)
	n.Catalog = agenttest.NewCatalog()
	list(n, "1.1")
	n.ask(source.PollAll, q)
	n.Counts()
	n.catalog().Asked()
	n.ask(source.PollDue, q)
	assert.Zero(t, n.Counts(), "the registry need not be asked")
	assert.Equal(t, 1, n.catalog().Asked())
	for name, c := range map[string]struct {
		err     error
		refused bool
	}{
		"away":     {agenttest.ErrRefused, false},
		"unsigned": {release.ErrUnsigned, false},
		"gone":     {release.ErrNotFound, true},
		"forged":   {release.ErrForged, true},
		"older":    {release.ErrCatalog, true},
	} {
		n.catalog().Fail(c.err)
		assert.Equal(t, "4.0.0-rev1-build1.1", says(n.ask(source.PollDue, q)[q]), "the last one serves")
		s := n.Record.Sources[agenttest.CatalogName]
		assert.Equal(t, c.refused, s.Refused, name)
		assert.Positive(t, s.Failures, name)
	}
	n.catalog().Fail(nil)
	n.catalog().Asked()
	n.ask(source.PollFailed, q)
	assert.Zero(t, n.catalog().Asked(), "not before its back-off")
	n.now = n.now.Add(policy.MaxBackoff)
	n.ask(source.PollFailed, q)
	assert.Equal(t, 1, n.catalog().Asked())
}

// skipping answers for another host that has failed before.
type skipping struct {
	*agenttest.Registry
	failure *release.SourceError
}

func (s *skipping) Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	by, err := s.Registry.Resolve(ctx, ref)
	by.Skipped = s.failure
	return by, err
}

// A host that failed before the one that answered is recorded until it answers, or none does.
func TestSkippedHostIsRecorded(t *testing.T) {
	t.Parallel()
	n, q := newNode(t)
	mirror := &skipping{n.Registry, &release.SourceError{Repository: velum, Host: "m1:5000", Mirror: true, Err: errors.New("503")}}
	n.Source = mirror
	n.ask(source.PollAll, q)
	assert.Equal(t, "mirror m1:5000: 503", n.Record.Sources[velum].Skipped)
	assert.Zero(t, n.Record.Sources[velum].Failures)
	n.Down(agenttest.ErrRefused)
	n.ask(source.PollAll, q)
	assert.Empty(t, n.Record.Sources[velum].Skipped, "nobody answered instead")
	n.Down(nil)
	mirror.failure = nil
	n.ask(source.PollAll, q)
	assert.Empty(t, n.Record.Sources[velum].Skipped)
}
