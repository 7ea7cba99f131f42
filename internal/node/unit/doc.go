// SPDX-License-Identifier: Apache-2.0

// Package unit reads the command that a unit of systemd starts, without systemd: from the unit, its drop-ins and its
// environment. It follows systemd's own code (src/core/load-fragment.c, src/basic/extract-word.c,
// src/basic/env-file.c); e2e/neighbours compares it with systemd 252 and 257.
//
// It reports features that it does not support as problems: the command may differ then.
package unit
