// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

// The source of a generated hosts.toml, as in its header.
const (
	fromAside     = "hosts.toml.before-local-registry" // the admin's file, kept next to the generated one
	fromDirectory = "no directory of its own"          // so disable removes the directory
	fromNothing   = "no hosts.toml"
	fromDefault   = "_default/hosts.toml" // which containerd no longer reads for this registry
)

// header is the header of a generated hosts.toml.
type header struct {
	position localregistry.Position
	registry string
	from     string // one of the constants above
	source   string // SHA-256 of the source
	edited   bool   // the file was changed since it was generated
}

// The two lines, with the text between their values.
const (
	beginning = "# image-update-agent: the node's local registry, "
	remedy    = ". Remove it: image-update-agent local-registry disable "
	origin    = " --write\n# Made from "
	rest      = ". Below this line: sha256:"
)

var headerLines = lazyregexp.New(`\A` + beginning + `(fallback|gate)` + remedy + `([^\s]{1,255})` + origin +
	`(` + fromAside + `|` + fromDirectory + `|` + fromNothing + `|` + fromDefault + `), sha256:([0-9a-f]{64})` +
	rest + `([0-9a-f]{64})\n`)

// withHeader puts the header before the body of a file.
func (h header) withHeader(body string) []byte {
	return []byte(beginning + string(h.position) + remedy + h.registry + origin + h.from + ", sha256:" + h.source +
		rest + sum([]byte(body)) + "\n" + body)
}

// headerOf reads the header of a file; false if the agent did not generate it.
func headerOf(data []byte) (header, bool) {
	m := headerLines().FindSubmatch(data)
	if m == nil {
		return header{}, false
	}
	return header{
		position: localregistry.Position(m[1]), registry: string(m[2]), from: string(m[3]), source: string(m[4]),
		edited: sum(data[len(m[0]):]) != string(m[5]),
	}, true
}

func sum(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}
