// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/internal/signature"
)

// checkKeys lists the keys that signatures are verified with, by fingerprint,
// where a repository wants signatures; each file that does not count is a finding.
func checkKeys(repositories []config.Repository, dirs []string) []Finding {
	const check = "signature keys"
	strictest := ""
	for _, r := range repositories {
		if r.Signatures == "require" || r.Signatures == "warn" && strictest == "" {
			strictest = r.Signatures
		}
	}
	if strictest == "" {
		return []Finding{ok(check, "no repository wants signatures")}
	}
	var refused, unread []Finding
	var loaded []string
	for _, f := range signature.KeyFiles(dirs) {
		switch {
		case f.Err == nil:
			loaded = append(loaded, f.String())
		case f.IsDir:
			unread = append(unread, warn(check, fmt.Sprintf("directory of signature keys cannot be read: %v", f.Err),
				"correct signatureKeys"))
		default:
			refused = append(refused, warn(check, fmt.Sprintf("signature key does not count: %s: %v", f.Path, f.Err),
				"a key is a *.pem file with one public key: correct it or remove it"))
		}
	}
	if len(loaded) > 0 {
		return append(append(refused, unread...), ok(check, strings.Join(loaded, ", ")))
	}
	err := fmt.Errorf("signature: %w: no *.pem in %s is one", signature.ErrNoKeys, strings.Join(dirs, ", "))
	const remedy = "put the publisher's public key there as a *.pem file, or set signatureKeys"
	if strictest == "require" {
		return append(refused, fail(check, err, remedy+"; until then nothing is staged of what requires a signature"))
	}
	return append(refused, warn(check, err.Error(), remedy))
}
