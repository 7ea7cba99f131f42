// SPDX-License-Identifier: Apache-2.0

package contents

import "time"

// Limits of one image.
const (
	maxDatabase = 128 << 20 // bytes of a database; a system with 1,500 packages has about 60 MB
	maxFiles    = 512       // files of an image that are read: packages of a distroless image, Go programs
	maxEntries  = 20_000    // of a directory, in all layers
	maxPackages = 20_000
	maxSteps    = 24       // to a directory, with those of symlinks
	maxText     = 300      // bytes of a name or version
	maxLine     = 4 << 10  // bytes of a line of a text that are kept
	maxAnswer   = 16 << 20 // bytes
	maxMessage  = 4 << 10  // bytes that the reading process says of an error

	// The reading process ends at any of these.
	maxMemory  = 512 << 20        // bytes; Go maps a part of it in advance
	maxSeconds = 20               // of a processor
	maxTime    = 30 * time.Second // of the clock
)
