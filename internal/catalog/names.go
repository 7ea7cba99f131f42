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
// "op-prod-20261122T095500Z-9f2c41aa03b7": the channel, the second, the fraction of the second
// in 1/65536, and 32 random bits. The tags of a channel sort by time. last is the channel's
// newest op, or empty: the new one sorts after it, whatever the clock says.
func NewOpTag(channel string, now time.Time, last string) string {
	now = now.UTC()
	second, tick := now.Truncate(time.Second), uint16(now.Nanosecond()/tickLength)
	if _, at, ok := splitOpTag(last); ok && at >= opClock(second, tick) {
		second, tick = nextTick(at)
	}
	random := make([]byte, 4)
	_, _ = rand.Read(random) // it never fails
	return opPrefix + channel + "-" + opClock(second, tick) + hex.EncodeToString(random)
}

// tickLength is 1/65536 of a second, in nanoseconds.
const tickLength = 1_000_000_000/(1<<16) + 1

// opClock is the part of an op's tag that says when.
func opClock(second time.Time, tick uint16) string {
	return fmt.Sprintf("%s-%04x", second.Format(opTime), tick)
}

// nextTick returns the tick after a clock that splitOpTag has returned.
func nextTick(clock string) (time.Time, uint16) {
	second, _ := time.Parse(opTime, clock[:len(opTime)])
	tick, _ := strconv.ParseUint(clock[len(opTime)+1:], 16, 16)
	if tick == 1<<16-1 {
		return second.Add(time.Second), 0
	}
	return second, uint16(tick) + 1
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

// opTimeOf returns when the op of a tag was asked for, in seconds.
func opTimeOf(tag string) time.Time {
	_, clock, ok := splitOpTag(tag)
	if !ok {
		return time.Time{}
	}
	at, _ := time.Parse(opTime, clock[:len(opTime)])
	return at
}

// splitOpTag returns the channel of an op's tag, and the part that says when.
func splitOpTag(tag string) (channel, clock string, ok bool) {
	const clockLength, tail = len(opTime) + len("-0000"), len("-") + len(opTime) + len("-000000000000")
	rest, is := strings.CutPrefix(tag, opPrefix)
	if !is || len(rest) <= tail || len(rest) > tail+maxChannel || rest[len(rest)-tail] != '-' {
		return "", "", false
	}
	channel, rest = rest[:len(rest)-tail], rest[len(rest)-tail+1:]
	_, errTime := time.Parse(opTime, rest[:len(opTime)])
	digits := rest[len(opTime)+1:]
	if errTime != nil || rest[len(opTime)] != '-' || strings.Trim(digits, "0123456789abcdef") != "" || !isPlain(channel) {
		return "", "", false
	}
	return channel, rest[:clockLength], true
}
