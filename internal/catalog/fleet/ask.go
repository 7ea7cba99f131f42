// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Sample is an element of an instant vector.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Asker answers a query of Prometheus, now. An answer is complete, or an error.
type Asker interface {
	Query(ctx context.Context, expr string) ([]Sample, error)
}

// Release is one release of a channel.
type Release struct{ Image, Tag, Digest string }

// The queries. ALL are the series of the channel's nodes, BEGUN those of the releases that a node has begun, FAILED
// those that have failed. A node counts once, also if two servers scrape it.
const (
	queryStates    = `count by (repository, digest, state) (group by (instance, repository, digest, state) (ALL))`
	queryReporting = `count by (repository) (group by (instance, repository) (ALL))`
	queryFailed    = `group by (instance, repository, digest) (FAILED)`
	// A node that has the image by another channel does not belong to this one any more.
	querySilent = `group by (instance, repository) (last_over_time(ALL[1d]))` +
		` unless on (instance, repository) ` + metric
	queryLost = `(group by (instance, repository, digest) (last_over_time(BEGUN[1d]))` +
		` unless on (instance, repository) last_over_time(` + metric + `[15m]))` +
		` or (group by (instance, repository, digest) (BEGUN)` +
		` and on (instance) (changes(` + cycles + `[1h]) == 0 and ` + cycles + ` offset 1h))`
)

const (
	metric = "image_update_agent_release_info"
	cycles = "image_update_agent_loop_turns_total"
)

// maxName bounds the name of a node, in bytes.
const maxName = 253

// answers are those to the queries.
type answers struct{ states, reporting, failed, silent, lost []Sample }

// Ask returns the standings of releases of a channel. name is REPOSITORY:CHANNEL as nodes know it.
func Ask(ctx context.Context, from Asker, name string, releases []Release) ([]Standing, error) {
	of := func(states string) string { return fmt.Sprintf("%s{catalog=%q%s}", metric, name, states) }
	queries := strings.NewReplacer("ALL", of(""), "FAILED", of(fmt.Sprintf(`,state=%q`, status.ReleaseFailed)),
		"BEGUN", of(fmt.Sprintf(`,state=~"%s|%s|%s"`, status.ReleaseRunning, status.ReleaseStarting, status.ReleaseFailed)))
	var got answers
	for query, to := range map[string]*[]Sample{
		queryStates: &got.states, queryReporting: &got.reporting, queryFailed: &got.failed,
		querySilent: &got.silent, queryLost: &got.lost,
	} {
		var err error
		if *to, err = from.Query(ctx, queries.Replace(query)); err != nil {
			return nil, err
		}
	}
	out := []Standing{}
	for _, r := range releases {
		out = append(out, got.standing(r))
	}
	return out, nil
}

func (a answers) standing(r Release) Standing {
	s := Standing{
		Image: r.Image, Tag: r.Tag, Digest: r.Digest,
		FailedNodes: nodesOf(a.failed, r, true), SilentNodes: nodesOf(a.silent, r, false),
		LostNodes: nodesOf(a.lost, r, true),
	}
	s.Failed, s.Silent = len(s.FailedNodes), len(s.SilentNodes)
	count := map[status.ReleaseState]int{}
	for _, is := range a.states {
		if isOf(is, r, true) {
			count[status.ReleaseState(is.Labels["state"])] += int(is.Value)
		}
	}
	s.Running, s.Starting = count[status.ReleaseRunning], count[status.ReleaseStarting]
	s.Staged, s.Offered, s.Held = count[status.ReleaseStaged], count[status.ReleaseOffered], count[status.ReleaseHeld]
	reporting := 0
	for _, is := range a.reporting {
		if isOf(is, r, false) {
			reporting += int(is.Value)
		}
	}
	s.Nodes = reporting + s.Silent
	// The queries are not of the same moment.
	s.Others = max(0, reporting-s.Running-s.Starting-s.Staged-s.Offered-s.Held-s.Failed)
	return s
}

func isOf(s Sample, r Release, withDigest bool) bool {
	return s.Labels["repository"] == r.Image && (!withDigest || s.Labels["digest"] == r.Digest)
}

// nodesOf returns the names of the nodes of some samples, sorted.
func nodesOf(samples []Sample, r Release, withDigest bool) []string {
	out := []string{}
	for _, s := range samples {
		if isOf(s, r, withDigest) {
			out = append(out, outside.Line(s.Labels["instance"], maxName))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
