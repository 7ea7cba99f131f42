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
		return []Finding{skipped(check, "no repository requires signatures")}
	}
	return checkKeyFiles(check, "signatureKeys", strictest, dirs)
}

// checkCatalogKeys does the same for the keys of the release catalog.
func checkCatalogKeys(c config.Catalog, others []string) []Finding {
	const check = "catalog keys"
	switch {
	case c.Repository == "":
		return nil
	case c.Signatures == "off":
		return []Finding{warn(check, "the release catalog is not verified (catalog.signatures: off)",
			"set it to require, and catalog.keys: whoever can write to the registry promotes releases")}
	case len(c.Keys) > 0:
		return checkKeyFiles(check, "catalog.keys", c.Signatures, c.Keys)
	default:
		return checkKeyFiles(check, "signatureKeys", c.Signatures, others)
	}
}

func checkKeyFiles(check, setting, strictest string, dirs []string) []Finding {
	var refused, unread []Finding
	var loaded []string
	for _, f := range signature.KeyFiles(dirs) {
		switch {
		case f.Err == nil:
			loaded = append(loaded, f.String())
		case f.IsDir:
			unread = append(unread, warn(check, fmt.Sprintf("directory of signature keys cannot be read: %v", f.Err),
				"correct "+setting))
		default:
			refused = append(refused, warn(check, fmt.Sprintf("signature key does not count: %s: %v", f.Path, f.Err),
				"a key is a *.pem file with one public key: correct it or remove it"))
		}
	}
	if len(loaded) > 0 {
		return append(append(refused, unread...), ok(check, strings.Join(loaded, ", ")))
	}
	err := fmt.Errorf("signature: %w: no *.pem in %s is one", signature.ErrNoKeys, strings.Join(dirs, ", "))
	remedy := "put the publisher's public key there as a *.pem file, or set " + setting
	if strictest == "require" {
		return append(refused, fail(check, err, remedy+"; until then nothing is staged of what requires a signature"))
	}
	return append(refused, warn(check, err.Error(), remedy))
}
