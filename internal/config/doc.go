// SPDX-License-Identifier: Apache-2.0

// Package config reads the agent's configuration, strictly, in three steps.
//
// A Fragment is one file (or the environment) as written. Fragments are merged
// to inputs: the vendor's file below /usr/share, the admin's file below /etc,
// its drop-ins in the order of their names, the environment; the later one
// wins. The merged inputs become Settings: typed, validated, with units, and
// complete, for every key has a default.
//
// A text or a plain list replaces the earlier one. Named things (values by
// repository, repositories by match, rewrites by from) are merged by name, so
// that a drop-in can add one. Maintenance windows have no names: they are a plain
// list.
//
// Nothing is ignored: an unknown or repeated key, a wrong type, a value that is
// not allowed, or a drop-in with another suffix than .yaml is a problem with
// file, line and what would be right. All problems of all files are reported
// at once.
package config
