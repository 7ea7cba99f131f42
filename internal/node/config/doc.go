// SPDX-License-Identifier: Apache-2.0

// Package config reads the agent's configuration, strictly.
//
// A setting is defined in one place: a field of Settings or of one of its sections, whose tags are the key (yaml), the
// kind of value (is) and the default. One walker reads the defaults, the values of the node's other programs, the
// vendor's file below /usr/share, the admin's below /etc, its drop-ins in the order of their names, and the environment
// into the same Settings; the last one wins. A text or a plain list replaces the earlier one. Named things (values by
// repository, repositories by match, rewrites by from) are merged by name. In addition to the Settings the walker keeps
// the output of `config show`: each value as written, and its origin.
//
// Nothing is ignored: an unknown or repeated key, a wrong type, an invalid value, or a drop-in with another suffix is a
// problem, reported with file, line and a correction. All problems of all files are reported at once.
package config
