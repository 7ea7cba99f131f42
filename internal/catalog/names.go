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
	OpsMediaType   = "application/vnd.kubic.image-catalog.ops.v1+gzip"
	ShardMediaType = "application/vnd.kubic.image-catalog.shard.v1+gzip"
	LogMediaType   = "application/vnd.kubic.image-catalog.log.v1+gzip"
	OpArtifactType = "application/vnd.kubic.image-catalog.op.v1"
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
	case !isPlain(name):
		return newError(KindFormat, "channel %q: want lower-case letters, digits, '.', '_' and '-', a letter first", name)
	case isVersion || IsOpTag(name) || strings.HasPrefix(name, "sha256-"):
		return newError(KindFormat, "channel %q: such tags name versions, ops and signatures", name)
	}
	return nil
}

// isPlain reports whether a name has only the characters of channels, a letter first.
func isPlain(name string) bool {
	const first = "abcdefghijklmnopqrstuvwxyz"
	return name != "" && strings.Contains(first, name[:1]) && strings.Trim(name, first+"0123456789._-") == ""
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
	if channel = tag[:at]; err != nil || version == 0 || version > MaxVersion || VersionTag(channel, version) != tag {
		return "", 0, false
	}
	return channel, version, true
}

// SignatureTag returns cosign's tag for the signatures of a manifest.
func SignatureTag(d digest.Digest) string { return d.Algorithm().String() + "-" + d.Encoded() + ".sig" }

// SignedDigest returns the digest whose signatures a tag of cosign names; false for other tags.
func SignedDigest(tag string) (digest.Digest, bool) {
	text, is := strings.CutSuffix(tag, ".sig")
	d := digest.Digest(strings.Replace(text, "-", ":", 1))
	return d, is && d.Validate() == nil
}

// NewOpTag returns a tag for an op that a publisher asks for now, as
// "op-prod-20261122T095500Z-9f2c41aa03b7": the channel, the second, and 48 random bits. The time is for people.
func NewOpTag(channel string, now time.Time) string {
	random := make([]byte, 6)
	_, _ = rand.Read(random) // it never fails
	return opPrefix + channel + "-" + now.UTC().Format(opTime) + "-" + hex.EncodeToString(random)
}

// OpChannel returns the channel of an op's tag; ok is false for other tags.
func OpChannel(tag string) (channel string, ok bool) {
	channel, _, ok = splitOpTag(tag)
	return channel, ok
}

// IsOpTag reports whether a tag names an op.
func IsOpTag(tag string) bool {
	_, ok := OpChannel(tag)
	return ok
}

// splitOpTag returns the channel of an op's tag, and when the op was asked for.
func splitOpTag(tag string) (channel string, at time.Time, ok bool) {
	const tail = len("-") + len(opTime) + len("-000000000000")
	rest, is := strings.CutPrefix(tag, opPrefix)
	if !is || len(rest) <= tail || len(rest) > tail+maxChannel || rest[len(rest)-tail] != '-' {
		return "", time.Time{}, false
	}
	channel, rest = rest[:len(rest)-tail], rest[len(rest)-tail+1:]
	at, errTime := time.Parse(opTime, rest[:len(opTime)])
	digits := rest[len(opTime)+1:]
	if errTime != nil || rest[len(opTime)] != '-' || strings.Trim(digits, "0123456789abcdef") != "" || !isPlain(channel) {
		return "", time.Time{}, false
	}
	return channel, at, true
}
