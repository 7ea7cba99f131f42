// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
)

// Where the content of a hosts.toml of ours is from, as its header says.
const (
	fromAside     = "hosts.toml.before-own-host" // the admin's file, kept beside ours
	fromDirectory = "no directory of its own"    // so that disable removes it
	fromNothing   = "no hosts.toml"
	fromDefault   = "_default/hosts.toml" // which containerd does not read any more for this registry
)

// header is what a hosts.toml of ours begins with.
type header struct {
	position ownhost.Position
	registry string
	from     string // one of those above
	source   string // sha256 of what is there
	edited   bool   // the file was changed since we wrote it
}

// The two lines, with what stands between their values.
const (
	beginning = "# image-update-agent: the node's own host, "
	remedy    = ". Remove it: image-update-agent localhost disable "
	origin    = " --write\n# Made from "
	rest      = ". Below this line: sha256:"
)

var headerLines = regexp.MustCompile(`\A` + beginning + `(fallback|gate)` + remedy + `([^\s]{1,255})` + origin +
	`(` + fromAside + `|` + fromDirectory + `|` + fromNothing + `|` + fromDefault + `), sha256:([0-9a-f]{64})` +
	rest + `([0-9a-f]{64})\n`)

// withHeader puts the header before the body of a file.
func (h header) withHeader(body string) []byte {
	return []byte(beginning + string(h.position) + remedy + h.registry + origin + h.from + ", sha256:" + h.source +
		rest + sum([]byte(body)) + "\n" + body)
}

// headerOf reads the header of a file; false: the file is not ours.
func headerOf(data []byte) (header, bool) {
	m := headerLines.FindSubmatch(data)
	if m == nil {
		return header{}, false
	}
	return header{
		position: ownhost.Position(m[1]), registry: string(m[2]), from: string(m[3]), source: string(m[4]),
		edited: sum(data[len(m[0]):]) != string(m[5]),
	}, true
}

func sum(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}
