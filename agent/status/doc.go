// SPDX-License-Identifier: Apache-2.0

// Package status holds the status document of a node for programs and people. Each state, hold, reason and error has a
// kind with typed fields; this package and the pages for people make sentences from them, and no program parses these.
// A Reporter reports the progress of long work, and its heartbeats.
package status
