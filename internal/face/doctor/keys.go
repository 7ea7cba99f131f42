// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/registry/signature"
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
	return checkKeyFiles(check, "signatureKeys", strictest, dirs, 1)
}

// checkCatalogKeys does the same for the keys of the release catalog.
func checkCatalogKeys(c config.Catalog, others []string) []Finding {
	const check = "catalog keys"
	switch {
	case c.Repository == "":
		return nil
	case c.Signatures == "off":
		return []Finding{warn(check, "the release catalog is not verified (catalog.signatures: off)",
			"set it to require and set catalog.keys: otherwise anyone who can write to the registry can promote releases")}
	case len(c.Keys) > 0:
		return checkKeyFiles(check, "catalog.keys", c.Signatures, c.Keys, c.RequiredKeys)
	default:
		return checkKeyFiles(check, "signatureKeys", c.Signatures, others, c.RequiredKeys)
	}
}

// checkKeyFiles lists the keys. require is how many of them must have signed.
func checkKeyFiles(check, setting, strictest string, dirs []string, require int) []Finding {
	var refused, unread []Finding
	var loaded []string
	for _, f := range signature.KeyFiles(dirs) {
		switch {
		case f.Err == nil:
			loaded = append(loaded, f.String())
		case f.IsDir:
			unread = append(unread, warn(check, fmt.Sprintf("cannot read a directory of signature keys: %v", f.Err),
				"correct "+setting))
		default:
			refused = append(refused, warn(check, fmt.Sprintf("signature key ignored: %s: %v", f.Path, f.Err),
				"correct or remove the file: a key is a *.pem file with one public key"))
		}
	}
	if len(loaded) > 0 {
		refused = append(refused, unread...)
	}
	_, err := signature.New(signature.Options{Dirs: dirs, Require: require}).Keys(context.Background())
	if err == nil {
		text := strings.Join(loaded, ", ")
		if require > 1 {
			text += fmt.Sprintf("; %d of them must have signed", require)
		}
		return append(refused, ok(check, text))
	}
	remedy := "put the publisher's public key there as a *.pem file, or set " + setting
	if strictest == "require" {
		return append(refused, fail(check, err, remedy+"; until then the agent stages no image that requires a signature"))
	}
	return append(refused, warn(check, err.Error(), remedy))
}
