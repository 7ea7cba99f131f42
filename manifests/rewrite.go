// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"strings"
)

// Rewrite moves repositories: From is a whole repository or the leading path
// components of some ("sles12" takes sles12/velum, not sles12sp5/velum), To is
// what stands in its place. Of several that fit the longest From counts,
// whatever the order. Where To lies under From itself (a=a/mirror), a repository
// that is under To already stays.
type Rewrite struct{ From, To string }

// under tells whether name is prefix or lies below it.
func under(name, prefix string) bool {
	return name == prefix || strings.HasPrefix(name, prefix) && name[len(prefix)] == '/'
}

// CheckRewrites refuses what could not be rendered twice with the same outcome:
// a rewrite that takes up what another one writes. Render asks it first.
func CheckRewrites(rewrites []Rewrite) error {
	from := make(map[string]bool, len(rewrites))
	for i, r := range rewrites {
		for _, side := range []string{r.From, r.To} {
			if !validPrefix(side) {
				return fmt.Errorf("rewrite %s=%s: %q is no repository or leading part of one", r.From, r.To, side)
			}
		}
		if from[r.From] {
			return fmt.Errorf("rewrite %s=%s: %s is rewritten twice", r.From, r.To, r.From)
		}
		from[r.From] = true
		for j, other := range rewrites {
			if i != j && (under(r.To, other.From) || under(other.From, r.To)) {
				return fmt.Errorf("rewrite %s=%s: its result is rewritten again by %s=%s",
					r.From, r.To, other.From, other.To)
			}
		}
	}
	return nil
}

// validPrefix takes a registry host alone, too.
func validPrefix(s string) bool { return Reference{Name: s + "/x"}.valid() }

// Rewritten is the repository that stands for name after the rewrites.
func Rewritten(name string, rewrites []Rewrite) string {
	var best Rewrite
	for _, r := range rewrites {
		if under(name, r.From) && len(r.From) > len(best.From) {
			best = r
		}
	}
	if best.From == "" {
		return name
	}
	if under(best.To, best.From) {
		if under(name, best.To) {
			return name
		}
		return best.To + name[len(best.From):]
	}
	// Once, but for a From that lies under its To: a/b=a makes a/b/b/x to a/b/x,
	// which fits again.
	for under(name, best.From) {
		name = best.To + name[len(best.From):]
	}
	return name
}
