// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Sizes in bytes. A manifest may have the size that registries must accept (OCI distribution specification), an
// index.json the same, and all indexes of a tree together four times that.
const (
	maxIndex    = 4 << 20
	maxIndexes  = 16 << 20
	maxManifest = 4 << 20
	maxMarker   = 4 << 10 // oci-layout: 30 bytes
)

// Counts: a thousand images of a hundred blobs each; repositories in use have at most a
// dozen components.
const (
	maxEntries = 100_000 // members of a tar file, or files and directories outside the blobs
	maxDepth   = 16      // directories above an oci-layout
)

// shown makes a file name safe for an error: quoted if it is not printable.
func shown(name string) string {
	if strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }) {
		name = strconv.Quote(name)
	}
	return outside.Text(name)
}
