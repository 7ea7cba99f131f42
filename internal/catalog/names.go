// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

// The media types of a catalog.
const (
	ArtifactType   = "application/vnd.kubic.image-catalog.v1"
	PageMediaType  = "application/vnd.kubic.image-catalog.page.v1+gzip"
	OpArtifactType = "application/vnd.kubic.image-catalog.op.v1"
	OpMediaType    = "application/vnd.kubic.image-catalog.op.v1+json"
)

const (
	maxChannel  = 64
	versionSign = "-v"
	opPrefix    = "op-"
	opTime      = "20060102T150405Z"
)

// CheckChannel checks the name of a channel: lower-case letters, digits, '.', '_' and '-',
// beginning with a letter, and not like a version, an op or a signature.
func CheckChannel(name string) error {
	_, _, isVersion := ParseVersionTag(name)
	switch {
	case name == "":
		return newError(KindFormat, "the channel has no name")
	case len(name) > maxChannel:
		return newError(KindFormat, "channel %.20q...: longer than %d characters", name, maxChannel)
	case name[0] < 'a' || name[0] > 'z' || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "":
		return newError(KindFormat, "channel %q: want lower-case letters, digits, '.', '_' and '-', a letter first", name)
	case isVersion || IsOpTag(name) || strings.HasPrefix(name, "sha256-"):
		return newError(KindFormat, "channel %q: such tags name versions, ops and signatures", name)
	}
	return nil
}

// VersionTag returns the tag of one version of a channel, as "prod-v00000031".
func VersionTag(channel string, version uint64) string {
	return fmt.Sprintf("%s%s%08d", channel, versionSign, version)
}

// ParseVersionTag splits a version tag.
func ParseVersionTag(tag string) (channel string, version uint64, ok bool) {
	at := strings.LastIndex(tag, versionSign)
	if at <= 0 {
		return "", 0, false
	}
	version, err := strconv.ParseUint(tag[at+len(versionSign):], 10, 64)
	if channel = tag[:at]; err != nil || version == 0 || VersionTag(channel, version) != tag {
		return "", 0, false
	}
	return channel, version, true
}

// SignatureTag returns cosign's tag for the signatures of a manifest.
func SignatureTag(d digest.Digest) string { return d.Algorithm().String() + "-" + d.Encoded() + ".sig" }

// NewOpTag returns a tag for an op that is asked for now. Tags sort by time.
func NewOpTag(now time.Time) string {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // it never fails
	return opPrefix + now.UTC().Format(opTime) + "-" + hex.EncodeToString(random)
}

// IsOpTag reports whether a tag names an op.
func IsOpTag(tag string) bool {
	rest, is := strings.CutPrefix(tag, opPrefix)
	at, random, cut := strings.Cut(rest, "-")
	_, errTime := time.Parse(opTime, at)
	bytes, errHex := hex.DecodeString(random)
	return is && cut && errTime == nil && errHex == nil && len(bytes) == 4 && strings.ToLower(random) == random
}
