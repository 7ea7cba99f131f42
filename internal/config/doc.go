// SPDX-License-Identifier: Apache-2.0

// Package config reads the agent's configuration, strictly.
//
// A setting stands in one place: a field of Settings or of one of its sections, whose tags are the key (yaml), the
// kind of value (is) and the default. One walker reads the defaults, what the node's own files say, the vendor's file
// below /usr/share, the admin's below /etc, its drop-ins in the order of their names, and the environment into the
// same Settings; the later one wins. A text or a plain list replaces the earlier one. Named things (values by
// repository, repositories by match, rewrites by from) are merged by name. Beside the Settings the walker keeps what
// `config show` prints: each value as it was written, and its origin.
//
// Nothing is ignored: an unknown or repeated key, a wrong type, a value that is not allowed, or a drop-in with another
// suffix is a problem with file, line and what would be right. All problems of all files are reported at once.
package config
