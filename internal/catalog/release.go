// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/tags"
)

const (
	maxSet     = 128 // bytes
	maxMembers = 512 // releases of a set
	// MaxMembers is how many bytes the names of a set's releases may have together: each page
	// has them up to Kept times.
	MaxMembers = 24 << 10
	maxReason  = 512
	// MaxHours is how long a rollout takes at most.
	MaxHours   = 24 * 366
	maxUnknown = 16 // fields of a release that are not known, or critical
)

// Release is one build of an image.
type Release struct {
	Tag     string        `json:"tag"` // long tag
	Digest  digest.Digest `json:"digest"`
	Created time.Time     `json:"created,omitzero"`
	Set     string        `json:"set,omitempty"`
	// Members are all releases of the set, this one among them, as REPOSITORY:TAG, sorted; nil: no publisher
	// has said which. See Member.
	Members   []string    `json:"members,omitempty"`
	Rollout   *Rollout    `json:"rollout,omitempty"`   // nil: at once
	Withdrawn *Withdrawal `json:"withdrawn,omitempty"` // nil: it is offered
	Advisory  *Advisory   `json:"advisory,omitempty"`  // nil: nobody has said what it is good for
	// Critical are the names of fields that a reader must know to use the release.
	Critical []string `json:"critical,omitempty"`
	// Op is the op that gave the release its set and its rollout last, and Turn that op's turn; an add leaves none.
	Op   string `json:"op,omitempty"`
	Turn uint64 `json:"turn,omitempty"`
	// Again is the last op that offered the release although it was withdrawn; nil: there was none.
	Again *Mark `json:"again,omitempty"`
	// Unknown are the fields that this package does not know.
	Unknown map[string]json.RawMessage `json:"-"`
}

// Offered returns the mark of the op that gave the release its set and its rollout.
func (r Release) Offered() Mark { return Mark{Op: r.Op, Turn: r.Turn} }

// Rollout spreads a release over the nodes: each applies it at a time of its own.
type Rollout struct {
	From  time.Time `json:"from"`
	Hours int       `json:"hours"`
	// Paused says when the rollout was paused; nil: it is under way. From is in the year 9000 then, so that no
	// node's time comes.
	Paused *Pause `json:"paused,omitempty"`
}

// Pause says when a rollout was paused, and when it had begun.
type Pause struct {
	At   time.Time `json:"at"`
	From time.Time `json:"from"` // when the rollout had begun
}

// never is a time that no node reaches.
var never = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)

// Gone returns how much of the rollout's time is over, from 0 to all of its hours.
func (o Rollout) Gone(now time.Time) time.Duration {
	from := o.From
	if o.Paused != nil {
		from, now = o.Paused.From, o.Paused.At
	}
	return min(max(now.Sub(from), 0), o.Span())
}

// Share returns how much of the rollout's time is over, in percent.
func (o Rollout) Share(now time.Time) int {
	switch {
	case o.Hours > 0:
		return int(100 * o.Gone(now) / o.Span())
	case o.Paused == nil && !now.Before(o.From):
		return 100
	}
	return 0
}

// Span returns the rollout's time in all.
func (o Rollout) Span() time.Duration { return time.Duration(o.Hours) * time.Hour }

// Pause returns the rollout, paused now.
func (o Rollout) Pause(now time.Time) Rollout {
	if o.Paused == nil {
		o.Paused, o.From = &Pause{At: now, From: o.From}, never
	}
	return o
}

// Resume returns the rollout as it continues now, over this many hours in all. The share of its time that is over
// stays, so that a node whose time has come may go on.
func (o Rollout) Resume(now time.Time, hours int) Rollout {
	next := Rollout{From: o.From, Hours: hours}
	if o.Paused != nil {
		next.From = o.Paused.From
	}
	if next.From.Before(now) {
		share := 1.0
		if o.Hours > 0 {
			share = float64(o.Gone(now)) / float64(o.Span())
		}
		next.From = now.Add(-time.Duration(share * float64(next.Span()))).Truncate(time.Second)
	}
	return next
}

// isValid reports whether each node's time can be told and written.
func (o Rollout) isValid() bool {
	if o.Hours < 0 || o.Hours > MaxHours || !o.From.Equal(outside.Time(o.From)) {
		return false
	}
	if p := o.Paused; p != nil && (!p.At.Equal(outside.Time(p.At)) || !p.From.Equal(outside.Time(p.From))) {
		return false
	}
	end := o.From.Add(o.Span())
	return end.Equal(outside.Time(end))
}

// Withdrawal says that nodes must not run a release.
type Withdrawal struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	To     string    `json:"to,omitempty"` // long tag to run instead

	Mark // the op that withdrew the release; none in catalogs of older publishers
}

// fields are the names of the fields of Release.
var fields = []string{
	"tag", "digest", "created", "set", "members", "rollout", "withdrawn", "critical", "op", "turn", "again",
	"advisory",
}

// plain is a Release without methods.
type plain Release

// UnmarshalJSON keeps the fields that are not known.
func (r *Release) UnmarshalJSON(data []byte) error {
	var known plain
	if err := json.Unmarshal(data, &known); err != nil {
		return err
	}
	if !hasUnknown(data) {
		*r = Release(known)
		return nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool { return slices.Contains(fields, name) })
	if len(all) > 0 {
		known.Unknown = all
	}
	*r = Release(known)
	return nil
}

// hasUnknown reports whether the object of a release, which is valid JSON, may have fields that are not known. It reads
// each byte once: a release of a set is kilobytes.
func hasUnknown(data []byte) bool {
	depth := 0
	for n := 0; n < len(data); n++ {
		switch data[n] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			begin := n + 1
			n, _ = textEnd(data, begin)
			rest := bytes.TrimLeft(data[min(n+1, len(data)):], " \t\r\n")
			isKey := depth == 1 && len(rest) > 0 && rest[0] == ':'
			if isKey && !slices.Contains(fields, string(data[begin:n])) {
				return true
			}
		}
	}
	return false
}

// textEnd returns where a string of JSON ends that begins behind its quote, and whether it has no escapes.
func textEnd(data []byte, begin int) (end int, isPlain bool) {
	isPlain = true
	for end = begin; end < len(data) && data[end] != '"'; end++ {
		if data[end] == '\\' {
			isPlain = false
			end++
		}
	}
	return min(end, len(data)), isPlain
}

// MarshalJSON writes the fields that are not known after the others, sorted.
func (r Release) MarshalJSON() ([]byte, error) {
	out, err := json.Marshal(plain(r))
	if err != nil || len(r.Unknown) == 0 {
		return out, err
	}
	more, err := json.Marshal(r.Unknown)
	if err != nil {
		return nil, err
	}
	return append(append(out[:len(out)-1], ','), more[1:]...), nil
}

// UnknownCritical returns a critical field that this package does not know; "": there is none.
func (r Release) UnknownCritical() string {
	for _, name := range r.Critical {
		if !slices.Contains(fields, name) {
			return name
		}
	}
	return ""
}

// IsOffered reports whether nodes may run the release.
func (r Release) IsOffered() bool { return r.Withdrawn == nil && r.UnknownCritical() == "" }

// IsPaused reports whether the rollout of the release is paused.
func (r Release) IsPaused() bool { return r.Rollout != nil && r.Rollout.Paused != nil }

// check checks all fields.
func (r Release) check() error {
	switch {
	case !isTag(r.Tag):
		return newError(KindFormat, "tag %q: not a tag", r.Tag)
	case r.Digest.Validate() != nil || r.Digest.Algorithm() != digest.SHA256:
		return newError(KindFormat, "%s: digest %q: want sha256", r.Tag, r.Digest)
	case !r.Created.Equal(outside.Time(r.Created)) && !r.Created.IsZero():
		return newError(KindFormat, "%s: created: year must be between 1 and 9998", r.Tag)
	case outside.Line(r.Set, maxSet) != r.Set:
		return newError(KindFormat, "%s: set %.20q: want at most %d printable bytes", r.Tag, r.Set, maxSet)
	case len(r.Critical) > maxUnknown || len(r.Unknown) > maxUnknown:
		return newError(KindTooLarge, "%s: more than %d fields that are critical or not known", r.Tag, maxUnknown)
	case r.Op != "" && !IsOpTag(r.Op):
		return newError(KindFormat, "%s: op %.40q: not the tag of an op", r.Tag, r.Op)
	}
	if err := r.checkMembers(); err != nil {
		return err
	}
	for _, name := range r.Critical {
		if outside.Line(name, maxSet) != name {
			return newError(KindFormat, "%s: critical: a name is not printable", r.Tag)
		}
	}
	return r.checkMarks()
}

// Member is a release as Members names it.
func Member(image, tag string) string { return image + ":" + tag }

// SplitMember returns the image and the tag of a member.
func SplitMember(member string) (image, tag string) {
	at := strings.LastIndexByte(member, ':')
	if at < 0 {
		return member, ""
	}
	return member[:at], member[at+1:]
}

// checkMembers checks the members of the set.
func (r Release) checkMembers() error {
	if len(r.Members) > 0 && r.Set == "" {
		return newError(KindFormat, "%s: members without a set", r.Tag)
	}
	return checkMembers(r.Tag, r.Members)
}

func checkMembers(of string, members []string) error {
	if !AreFew(members) {
		return newError(KindTooLarge, "%s: members: more than %d of them, or %d bytes", of, maxMembers, MaxMembers)
	}
	last := ""
	for n, m := range members {
		image, tag := SplitMember(m)
		var err error
		if image != last {
			err = checkImage(image)
		}
		if last = image; err != nil || !isTag(tag) || n > 0 && m <= members[n-1] {
			return newError(KindFormat, "%s: members: %.120q: want REPOSITORY:TAG, sorted", of, m)
		}
	}
	return nil
}

// AreFew reports whether a page has space for members.
func AreFew(members []string) bool {
	size := 0
	for _, m := range members {
		size += len(m)
	}
	return size <= MaxMembers && len(members) <= maxMembers
}

// checkMarks checks the rollout, the advisory and the withdrawal.
func (r Release) checkMarks() error {
	if o := r.Rollout; o != nil && !o.isValid() {
		return newError(KindFormat, "%s: rollout: want a time, and 0 to %d hours, within the years 1 to 9998",
			r.Tag, MaxHours)
	}
	if r.Again != nil && !IsOpTag(r.Again.Op) {
		return newError(KindFormat, "%s: again: %.40q: not the tag of an op", r.Tag, r.Again.Op)
	}
	if err := r.Advisory.check(); err != nil {
		return wrap(KindFormat, err, "%s: advisory", r.Tag)
	}
	w := r.Withdrawn
	switch {
	case w == nil:
		return nil
	case w.Op != "" && !IsOpTag(w.Op):
		return newError(KindFormat, "%s: withdrawn: op %.40q: not the tag of an op", r.Tag, w.Op)
	case w.Reason == "" || outside.Line(w.Reason, maxReason) != w.Reason:
		return newError(KindFormat, "%s: withdrawn: want a reason of at most %d printable bytes", r.Tag, maxReason)
	case !w.At.Equal(outside.Time(w.At)):
		return newError(KindFormat, "%s: withdrawn: year must be between 1 and 9998", r.Tag)
	case w.To != "" && !isTag(w.To):
		return newError(KindFormat, "%s: withdrawn: to %q: not a tag", r.Tag, w.To)
	}
	return nil
}

func isTag(tag string) bool { return tags.Classify(tag) != tags.ClassInvalid }
