// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Sizes for places that somebody else has written. A manifest's is what
// registries must accept at least (OCI distribution specification); one
// index.json may be as large, and all of a tree together four times that.
const (
	maxIndex    = 4 << 20
	maxIndexes  = 16 << 20
	maxManifest = 4 << 20
	maxMarker   = 4 << 10 // oci-layout: 30 bytes
)

// Counts: a thousand images of a hundred blobs each; a repository of the
// distribution specification has no more components than bytes, 255, but
// nobody's has more than a dozen.
const (
	maxEntries = 100_000 // members of a tar file, or files and directories beside the blobs
	maxDepth   = 16      // directories above an oci-layout
)

// shown is a file name from outside for an error: quoted where a terminal would
// act on it.
func shown(name string) string {
	if strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }) {
		name = strconv.Quote(name)
	}
	return outside.Text(name)
}
