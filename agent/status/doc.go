// SPDX-License-Identifier: Apache-2.0

// Package status holds the status document: what programs and people read of a node. Each
// state, hold, reason and error has a kind with typed fields; the sentences are made from
// them here and on the pages for people, and no program parses them. A Reporter passes on the
// progress of long work, and its heartbeats.
package status
