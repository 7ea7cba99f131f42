// SPDX-License-Identifier: Apache-2.0

package manifests

// Rewritten is the repository that rendering writes for the one in a template.
func Rewritten(name string, rewrites []Rewrite) string { return rewrite(name, rewrites) }

// CheckRewrites refuses what could not be rendered twice with the same outcome.
func CheckRewrites(rewrites []Rewrite) error { return checkRewrites(rewrites) }
