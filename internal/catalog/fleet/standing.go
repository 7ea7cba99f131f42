// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

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
	ErrShared = errors.New("several machines have one label instance")
)

// Known returns an error if the numbers are not known to be those of the nodes.
func (s Standing) Known() error {
	switch {
	case s.Nodes == s.Silent:
		return fmt.Errorf("%s:%s: %w", s.Image, s.Tag, ErrNoNode)
	case len(s.SharedNodes) > 0:
		return fmt.Errorf("%s:%s: %w%s", s.Image, s.Tag, ErrShared, names(s.SharedNodes))
	}
	return nil
}

// IsDone reports whether this share of the nodes is known to run the release, in percent.
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
