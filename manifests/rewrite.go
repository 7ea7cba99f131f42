// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"strings"
)

// Rewrite maps repositories: From is a whole repository or leading path components ("sles12" matches sles12/velum, not
// sles12sp5/velum), To replaces it. Of several matches the longest From applies, regardless of order. If To lies under
// From (a=a/mirror), a repository already under To stays.
type Rewrite struct{ From, To string }

// under reports whether name is prefix or below it.
func under(name, prefix string) bool {
	return name == prefix || strings.HasPrefix(name, prefix) && name[len(prefix)] == '/'
}

// CheckRewrites rejects rewrites that are not idempotent: one matches the result of another. Render calls it first.
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

// validPrefix also accepts a registry host alone.
func validPrefix(s string) bool { return Reference{Name: s + "/x"}.valid() }

// Rewritten returns the repository that replaces name.
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
	// Repeat only if From lies under its To: a/b=a maps a/b/b/x to a/b/x, which matches again.
	for under(name, best.From) {
		name = best.To + name[len(best.From):]
	}
	return name
}
