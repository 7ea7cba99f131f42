// SPDX-License-Identifier: Apache-2.0

// Package census tells how many nodes run a release of a channel, from the agents' metrics in a Prometheus, and whether
// its rollout may go on.
//
// # Words
//
// A node is a value of the label instance. It reports if Prometheus has its current metric for the image. It is silent
// if Prometheus has had one within a day. It is lost if it had begun the release (ran it, started it, or failed), and
// has not reported for 15 minutes, or if its agent has not done a cycle for an hour: a reboot takes less.
//
// # Promises
//
//   - A node counts once for each release.
//   - A release of which no node reports anything is not known to be well, nor is one of several machines with one
//     name.
package census

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Sample is an element of an instant vector.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Asker asks a Prometheus. An answer is complete, or an error.
type Asker interface {
	// Query evaluates an expression, now.
	Query(ctx context.Context, expr string) ([]Sample, error)
	// Values returns the values of a label of the series that have had samples since a time, and may return those of
	// older series. It reads no samples.
	Values(ctx context.Context, label, selector string, since time.Time) ([]string, error)
}

// Release is one release of a channel.
type Release struct{ Image, Tag, Digest string }

const (
	metric = "image_update_agent_release_info"
	cycles = "image_update_agent_loop_turns_total"
	checks = "image_update_agent_last_check_timestamp_seconds"
)

// Each query reads last samples only, but for those of a few minutes or of a few nodes.
const (
	queryTime = `vector(time())`
	// A node has a row for each state of the release, and one that says that it has the image.
	queryNow = `group by (instance, state) (RELEASE) or group by (instance) (IMAGE)`
	// A node that has the image by another channel does not belong to this one any more.
	queryBefore = `(group by (instance, state) (last_over_time(RELEASE[1d]))` +
		` or group by (instance) (last_over_time(IMAGE[1d]))) unless on (instance) ANY`
	queryLately = `group by (instance) (last_over_time(ANY[15m]))`
	queryStuck  = `group by (instance) (changes(` + cycles + `[1h]) == 0 and ` + cycles + ` offset 1h)`
	// Two scrapes of one machine have seen the same times of its checks, or their order: those of two machines have
	// none in common, or, if they are one series, it goes back and forth.
	queryShared = `max by (instance) (min_over_time(` + checks + `[15m]) and ` + checks + `)` +
		` > min by (instance) (max_over_time(` + checks + `[15m]) and ` + checks + `)` +
		` or max by (instance) (resets(` + checks + `[1h])) > 1`
	queryCatalogs = `group by (catalog) (` + metric + `)`
)

const (
	// known is how long a node is known after its last report.
	known = 24 * time.Hour
	// atOnce bounds the nodes that one query names.
	atOnce = 200
	// maxNamed bounds the nodes that are named for one release: of more it costs less to ask for all.
	maxNamed = 2000
	// maxName bounds the name of a node, in bytes.
	maxName = 253
)

// states are the states of a release, the first one that a node has decides.
var states = []status.ReleaseState{
	status.ReleaseFailed, status.ReleaseStarting, status.ReleaseRunning, status.ReleaseStaged, status.ReleaseHeld,
	status.ReleaseOffered,
}

// NothingError is returned if no node has reported any of the images: nothing is known of their releases.
type NothingError struct {
	Catalog  string
	Catalogs []string // those that nodes report on, sorted; "": nodes without a catalog
}

func (e *NothingError) Error() string {
	return "no node that follows " + e.Catalog + " has reported any of these images within a day"
}

// questions are those about the releases of one catalog.
type questions struct {
	from    Asker
	catalog string // REPOSITORY:CHANNEL
	since   time.Time
	stuck   set // nodes whose agent does no cycles
	shared  set // names that several machines have
}

type set map[string]bool

// nodes are the states of one release on each node that has the image.
type nodes map[string]map[status.ReleaseState]bool

// Ask returns the standings of releases of a channel. name is REPOSITORY:CHANNEL as nodes know it.
func Ask(ctx context.Context, from Asker, name string, releases []Release) ([]Standing, error) {
	q := questions{from: from, catalog: name}
	now, err := from.Query(ctx, queryTime)
	if err != nil {
		return nil, err
	}
	if len(now) != 1 || math.IsNaN(now[0].Value) || now[0].Value < 0 || now[0].Value > math.MaxUint32 {
		return nil, errors.New("the server does not tell its time")
	}
	q.since = time.Unix(int64(now[0].Value), 0).Add(-known)
	if q.stuck, err = q.names(ctx, queryStuck); err != nil {
		return nil, err
	}
	if q.shared, err = q.names(ctx, queryShared); err != nil {
		return nil, err
	}
	out, reported := []Standing{}, false
	for _, r := range releases {
		s, err := q.standing(ctx, r)
		if err != nil {
			return nil, err
		}
		reported = reported || s.Nodes > 0
		out = append(out, s)
	}
	if !reported {
		return nil, q.nothing(ctx)
	}
	return out, nil
}

// standing asks where the nodes stand with one release.
func (q questions) standing(ctx context.Context, r Release) (Standing, error) {
	image := fmt.Sprintf("%s{catalog=%q,repository=%q}", metric, q.catalog, r.Image)
	now, err := q.nodes(ctx, q.about(queryNow, r, ""))
	if err != nil {
		return Standing{}, err
	}
	names, err := q.from.Values(ctx, "instance", image, q.since)
	if err != nil {
		return Standing{}, err
	}
	missing := slices.DeleteFunc(names, func(name string) bool { return now[name] != nil })
	silent, lately := nodes{}, set{}
	for some := range slices.Chunk(missing, atOnce) {
		matcher := oneOf(some)
		if len(missing) > maxNamed {
			matcher = ""
		}
		before, err := q.nodes(ctx, q.about(queryBefore, r, matcher))
		if err != nil {
			return Standing{}, err
		}
		recent, err := q.names(ctx, q.about(queryLately, r, matcher))
		if err != nil {
			return Standing{}, err
		}
		maps.Copy(silent, before)
		maps.Copy(lately, recent)
		if matcher == "" {
			break
		}
	}
	return q.count(r, now, silent, lately), nil
}

// about fills in a query. nodes is a matcher of nodes; empty: all.
func (q questions) about(query string, r Release, nodes string) string {
	return strings.NewReplacer(
		"RELEASE", fmt.Sprintf("%s{catalog=%q,repository=%q,digest=%q%s}", metric, q.catalog, r.Image, r.Digest, nodes),
		"IMAGE", fmt.Sprintf("%s{catalog=%q,repository=%q%s}", metric, q.catalog, r.Image, nodes),
		"ANY", fmt.Sprintf("%s{repository=%q%s}", metric, r.Image, nodes),
	).Replace(query)
}

// oneOf returns a matcher of nodes.
func oneOf(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return fmt.Sprintf(",instance=~%q", strings.Join(quoted, "|"))
}

func (q questions) nodes(ctx context.Context, query string) (nodes, error) {
	samples, err := q.from.Query(ctx, query)
	out := nodes{}
	for _, s := range samples {
		name := s.Labels["instance"]
		if out[name] == nil {
			out[name] = map[status.ReleaseState]bool{}
		}
		if state := s.Labels["state"]; state != "" {
			out[name][status.ReleaseState(state)] = true
		}
	}
	return out, err
}

func (q questions) names(ctx context.Context, query string) (set, error) {
	samples, err := q.from.Query(ctx, query)
	out := set{}
	for _, s := range samples {
		out[s.Labels["instance"]] = true
	}
	return out, err
}

// nothing returns why no node reports.
func (q questions) nothing(ctx context.Context) error {
	samples, err := q.from.Query(ctx, queryCatalogs)
	if err != nil {
		return err
	}
	e := &NothingError{Catalog: q.catalog}
	for _, s := range samples {
		e.Catalogs = append(e.Catalogs, outside.Text(s.Labels["catalog"]))
	}
	slices.Sort(e.Catalogs)
	return e
}

// count counts each node once: now are those that report, silent those that have within a day, lately those that have
// within 15 minutes.
func (q questions) count(r Release, now, silent nodes, lately set) Standing {
	s := Standing{
		Image: r.Image, Tag: r.Tag, Digest: r.Digest, Nodes: len(now) + len(silent), Silent: len(silent),
		FailedNodes: []string{}, SilentNodes: []string{}, LostNodes: []string{}, SharedNodes: []string{},
	}
	count := map[status.ReleaseState]int{}
	add := func(to *[]string, name string) { *to = append(*to, outside.Line(cmp.Or(name, `""`), maxName)) }
	for name, has := range now {
		at := slices.IndexFunc(states, func(state status.ReleaseState) bool { return has[state] })
		if at < 0 {
			s.Others++
		} else {
			count[states[at]]++
		}
		if has[status.ReleaseFailed] {
			add(&s.FailedNodes, name)
		}
		if hasBegun(has) && q.stuck[name] {
			add(&s.LostNodes, name)
		}
		if q.shared[name] || name == "" {
			add(&s.SharedNodes, name)
		}
	}
	for name, had := range silent {
		add(&s.SilentNodes, name)
		if hasBegun(had) && !lately[name] {
			add(&s.LostNodes, name)
		}
	}
	s.Failed, s.Starting = count[status.ReleaseFailed], count[status.ReleaseStarting]
	s.Running = count[status.ReleaseRunning]
	s.Staged, s.Offered, s.Held = count[status.ReleaseStaged], count[status.ReleaseOffered], count[status.ReleaseHeld]
	for _, names := range [][]string{s.FailedNodes, s.SilentNodes, s.LostNodes, s.SharedNodes} {
		slices.Sort(names)
	}
	return s
}

func hasBegun(has map[status.ReleaseState]bool) bool {
	return has[status.ReleaseRunning] || has[status.ReleaseStarting] || has[status.ReleaseFailed]
}

// Standing is where the nodes of a channel stand with one release.
type Standing struct {
	Image  string `json:"image"`
	Tag    string `json:"tag"`
	Digest string `json:"digest"`
	// Nodes that have the image; each of them is in one of the numbers that follow.
	Nodes    int `json:"nodes"`
	Running  int `json:"running"`
	Starting int `json:"starting"`
	Staged   int `json:"staged"`
	Offered  int `json:"offered"` // not staged yet
	Held     int `json:"held"`
	Failed   int `json:"failed"`
	Others   int `json:"others"` // only other releases: they have not polled since, or do not follow its tag
	Silent   int `json:"silent"`
	// The names of nodes, sorted.
	FailedNodes []string `json:"failedNodes"`
	SilentNodes []string `json:"silentNodes"`
	// LostNodes had begun the release, and do not report any more.
	LostNodes []string `json:"lostNodes"`
	// SharedNodes are names that several machines have: each counts once, and one of its machines can hide the other.
	SharedNodes []string `json:"sharedNodes"`
}

// maxNames bounds the nodes in a sentence.
const maxNames = 10

// Sentence describes a standing, as in "r/velum:2: 9,998 of 10,000 nodes run it, 2 failed (n17, n23)".
func (s Standing) Sentence() string {
	if s.Nodes == 0 {
		return s.Image + ":" + s.Tag + ": " + ErrNoNode.Error()
	}
	silent := without(s.SilentNodes, s.LostNodes)
	parts := []string{fmt.Sprintf("%s of %s run it", thousands(s.Running), plural(s.Nodes))}
	for _, more := range []struct {
		n     int
		what  string
		nodes []string
	}{
		{s.Failed, "failed", s.FailedNodes},
		{len(s.LostNodes), "lost", s.LostNodes},
		{s.Starting, "starting", nil},
		{s.Staged, "staged", nil},
		{s.Offered, "not staged yet", nil},
		{s.Held, "held", nil},
		{s.Others, "without it", nil},
		{len(silent), "silent", silent},
	} {
		if more.n > 0 {
			parts = append(parts, thousands(more.n)+" "+more.what+names(more.nodes))
		}
	}
	return s.Image + ":" + s.Tag + ": " + strings.Join(parts, ", ")
}

// Bad returns how many nodes have failed or are lost.
func (s Standing) Bad() int { return len(s.FailedNodes) + len(without(s.LostNodes, s.FailedNodes)) }

// ErrNoNode and ErrShared are returned by Known.
var (
	ErrNoNode = errors.New("no node reports the image")
	ErrShared = errors.New("several machines share a label instance")
)

// Known returns an error if the numbers may be wrong.
func (s Standing) Known() error {
	switch {
	case s.Nodes == s.Silent:
		return fmt.Errorf("%s:%s: %w", s.Image, s.Tag, ErrNoNode)
	case len(s.SharedNodes) > 0:
		return fmt.Errorf("%s:%s: %w%s", s.Image, s.Tag, ErrShared, names(s.SharedNodes))
	}
	return nil
}

// IsDone reports whether this percentage of the nodes is known to run the release.
func (s Standing) IsDone(percent int) bool {
	return s.Known() == nil && 100*s.Running >= percent*s.Nodes
}

func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(others, name) })
}

func names(nodes []string) string {
	if len(nodes) == 0 {
		return ""
	}
	text := strings.Join(nodes[:min(len(nodes), maxNames)], ", ")
	if rest := len(nodes) - maxNames; rest > 0 {
		text += " and " + thousands(rest) + " more"
	}
	return " (" + text + ")"
}

func plural(n int) string {
	if n == 1 {
		return "1 node"
	}
	return thousands(n) + " nodes"
}

// thousands returns a number as 10,000.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
