// SPDX-License-Identifier: Apache-2.0

package signature

import "github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"

// Limits of data from a registry. cosign's payload has 250 bytes, its bundle 2 KiB, with a transparency log's proof 10
// KiB.
const (
	maxSignatures = 64                           // per digest and place
	maxPayload    = 64 << 10                     // bytes of a simple signing payload
	maxBundle     = ocimanifest.MaxSignatureBlob // bytes
	maxEncoded    = 4 << 10                      // characters of a signature in base64: RSA with 4096 bits has 684
	maxDepth      = 32                           // of JSON
	maxReasons    = 5                            // in an error
)

// Limits of key files, which belong to root.
const (
	maxKeyFiles = 64
	maxKeyFile  = 64 << 10 // bytes; RSA with 4096 bits has 800
)
