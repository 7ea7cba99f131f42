// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// Limits of an op. Registries take manifests of at most 4 MiB, and an op is an annotation of one.
const (
	MaxOp      = 3 << 20 // bytes
	MaxChanges = 5000
)

// annotationOp is the annotation that has the op, annotationOpSignature the one with the
// signature over it, in base64.
const (
	annotationOp           = "org.kubic.image-catalog.op"
	annotationOpSignature  = "org.kubic.image-catalog.signature"
	annotationOpSignatures = "org.kubic.image-catalog.signatures" // those of further keys, separated by spaces
)

// Action is what an op asks for.
type Action string

// The actions.
const (
	ActionAdd      Action = "add"      // list releases; those that are listed stay as they are
	ActionPromote  Action = "promote"  // list releases with these sets and rollouts, also withdrawn ones
	ActionWithdraw Action = "withdraw" // mark releases as withdrawn
	ActionRefresh  Action = "refresh"  // set when the channel expires
	ActionFreeze   Action = "freeze"   // set until when publishers refuse to add and to promote
	ActionNote     Action = "note"     // set the advisories of listed releases
)

// Op is a change of a channel that a publisher asks for. Its signature covers all fields, so
// that it cannot be asked for again in another catalog, or later.
type Op struct {
	Tag     string `json:"op"`   // its tag in the catalog's repository
	Name    string `json:"name"` // of the catalog, as in Manifest
	Channel string `json:"channel"`
	Do      Action `json:"do"`
	// Turn orders the ops of a channel: it is above all turns that its publisher knew. Ops of one turn were asked for
	// at the same time, and are ordered by their tags. 0: an older publisher asked for it.
	Turn uint64 `json:"turn,omitempty"`
	// Again makes a promote offer withdrawn releases.
	Again bool `json:"again,omitempty"`
	// Calm says that the op lets nodes do less, not more, so that it counts while the channel is frozen, too.
	Calm    bool      `json:"calm,omitempty"`
	Changes []Change  `json:"changes,omitempty"` // of all actions but refresh
	Expires time.Time `json:"expires,omitzero"`  // of refresh; zero: never
	Until   time.Time `json:"until,omitzero"`    // of freeze; zero: the channel is not frozen any more
	// By names the person or the CI user who asked for the op, and Run is the URL of the CI job. The publisher's
	// program sets both: the signature proves which key was used, not who used it.
	By     string `json:"by,omitempty"`
	Run    string `json:"run,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Sets are the members of the sets of its releases; see Release.Members, which changes leave out.
	Sets map[string][]string `json:"sets,omitempty"`
	// SignedBy are the fingerprints of the keys that signed the op. Whoever reads an op sets them; they are not encoded.
	SignedBy []string `json:"-"`
}

// Mark names an op in the order of a channel's ops.
type Mark struct {
	Op   string `json:"op,omitempty"`
	Turn uint64 `json:"turn,omitempty"`
}

// Mark returns the place of the op.
func (o Op) Mark() Mark { return Mark{Op: o.Tag, Turn: o.Turn} }

// Compare orders marks: by their turns, then by their tags. No mark is before all others.
func (m Mark) Compare(other Mark) int {
	return cmp.Or(cmp.Compare(m.Turn, other.Turn), strings.Compare(m.Op, other.Op))
}

// At returns when the op was asked for, by the clock of its publisher.
func (o Op) At() time.Time {
	_, at, _ := splitOpTag(o.Tag)
	return at
}

// Change is what an op asks for one release.
type Change struct {
	Image   string  `json:"image"`
	Release Release `json:"release"`
}

// Member names the release as Release.Members does.
func (c Change) Member() string { return Member(c.Image, c.Release.Tag) }

// Encode returns the op as JSON.
func (o Op) Encode() ([]byte, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	out, err := json.Marshal(o)
	if err == nil && len(out) > MaxOp {
		err = newError(KindTooLarge, "the op has more than %d bytes: divide it", MaxOp)
	}
	return out, err
}

// maxSignatures is how many signatures of an op are read.
const maxSignatures = 64

// OpManifest returns the OCI manifest that has an encoded op, with the signatures over it in base64.
func OpManifest(op []byte, signatures ...string) ([]byte, error) {
	notes := map[string]string{annotationOp: string(op)}
	if len(signatures) > 0 {
		notes[annotationOpSignature] = signatures[0]
	}
	if len(signatures) > 1 {
		notes[annotationOpSignatures] = strings.Join(signatures[1:], " ")
	}
	return json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		ArtifactType: OpArtifactType, Config: emptyBlob(), Layers: []ocispec.Descriptor{emptyBlob()}, Annotations: notes,
	})
}

// ReadOpManifest returns the encoded op of an OCI manifest, and the signatures in base64.
func ReadOpManifest(data []byte) (op []byte, signatures []string, err error) {
	doc, err := unmarshalOCI(data, ocimanifest.NewBounds())
	if err != nil {
		return nil, nil, err
	}
	if doc.ArtifactType != OpArtifactType {
		return nil, nil, newError(KindFormat, "artifact type %q: want %s", doc.ArtifactType, OpArtifactType)
	}
	signatures = strings.Fields(doc.Annotations[annotationOpSignature] + " " + doc.Annotations[annotationOpSignatures])
	if len(signatures) > maxSignatures {
		return nil, nil, newError(KindTooLarge, "more than %d signatures", maxSignatures)
	}
	return []byte(doc.Annotations[annotationOp]), signatures, nil
}

// DecodeOp decodes the op of a tag and checks all of it.
func DecodeOp(tag string, data []byte) (Op, error) {
	if len(data) > MaxOp {
		return Op{}, newError(KindTooLarge, "%s: the op has more than %d bytes", tag, MaxOp)
	}
	if _, err := (&ocimanifest.Bounds{Entries: MaxChanges, Members: MaxChanges * maxUnknown * 2}).Write(data); err != nil {
		return Op{}, wrap(KindTooLarge, err, "%s", tag)
	}
	o := Op{}
	if err := unmarshal(data, &o); err != nil {
		return Op{}, wrap(KindFormat, err, "%s", tag)
	}
	if o.Tag != tag {
		return Op{}, newError(KindFormat, "%s: it was published as %.120q", tag, o.Tag)
	}
	if err := o.check(); err != nil {
		return Op{}, wrap(KindFormat, err, "%s", tag)
	}
	return o, nil
}

// EncodeOps returns a list of ops as gzip: their tags, sorted, one in a line.
func EncodeOps(ops []string) ([]byte, error) {
	var text strings.Builder
	for _, op := range ops {
		text.WriteString(op + "\n")
	}
	if text.Len() > maxOps {
		return nil, newError(KindTooLarge, "list of ops: too long, with %d of them: prune the catalog", len(ops))
	}
	return pack([]byte(text.String()))
}

// DecodeOps decodes a list of ops.
func DecodeOps(data []byte, ref BlobRef) ([]string, error) {
	text, err := ref.unpack(data, maxOps, "list of ops")
	if err != nil {
		return nil, err
	}
	var ops []string
	for line := range strings.Lines(string(text)) {
		op := strings.TrimSuffix(line, "\n")
		if !IsOpTag(op) || len(ops) > 0 && op <= ops[len(ops)-1] {
			return nil, newError(KindFormat, "list of ops: %.40q: want tags of ops, sorted", op)
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// check checks all fields.
func (o Op) check() error {
	if err := CheckChannel(o.Channel); err != nil {
		return err
	}
	switch o.Do {
	case ActionAdd, ActionPromote, ActionWithdraw, ActionRefresh, ActionFreeze, ActionNote:
	default:
		return newError(KindFormat, "action %.20q: want add, promote, withdraw, refresh, freeze or note", o.Do)
	}
	if err := checkImage(o.Name); err != nil {
		return wrap(KindFormat, err, "name")
	}
	if channel, ok := OpChannel(o.Tag); !ok || channel != o.Channel {
		return newError(KindFormat, "tag %.120q: not the tag of an op of channel %s", o.Tag, o.Channel)
	}
	if o.Turn > MaxVersion {
		return newError(KindFormat, "turn %d: want at most %d", o.Turn, uint64(MaxVersion))
	}
	if len(o.Changes) > MaxChanges {
		return newError(KindTooLarge, "more than %d changes", MaxChanges)
	}
	for name, t := range map[string]time.Time{"expires": o.Expires, "until": o.Until} {
		if !t.IsZero() && !t.Equal(outside.Time(t)) {
			return newError(KindFormat, "%s: year must be between 1 and 9998", name)
		}
	}
	for name, text := range map[string]string{"by": o.By, "run": o.Run, "reason": o.Reason} {
		if err := CheckReason(text); err != nil {
			return wrap(KindFormat, err, "%s", name)
		}
	}
	return o.checkContent()
}

// CheckReason checks a text of an op, such as the reason: one line that is not too long.
func CheckReason(text string) error {
	if outside.Line(text, maxReason) != text {
		return newError(KindFormat, "want at most %d printable bytes", maxReason)
	}
	return nil
}

// CheckSet checks the name of a set.
func CheckSet(set string) error {
	if set == "" || outside.Line(set, maxSet) != set {
		return newError(KindFormat, "set %.20q: want 1 to %d printable bytes", set, maxSet)
	}
	return nil
}

// checkContent checks the sets and the changes.
func (o Op) checkContent() error {
	for set, members := range o.Sets {
		if err := CheckSet(set); err != nil {
			return err
		}
		if err := checkMembers("set "+set, members); err != nil {
			return err
		}
	}
	for _, c := range o.Changes {
		if err := checkImage(c.Image); err != nil {
			return err
		}
		if err := c.Release.check(); err != nil {
			return wrap(KindFormat, err, "%s", c.Image)
		}
		if isWithdrawal := c.Release.Withdrawn != nil; isWithdrawal != (o.Do == ActionWithdraw) {
			return newError(KindFormat, "%s:%s: a withdrawal, and nothing else, has a reason", c.Image, c.Release.Tag)
		}
		if o.Do == ActionNote && c.Release.Advisory == nil {
			return newError(KindFormat, "%s:%s: want an advisory", c.Image, c.Release.Tag)
		}
	}
	return nil
}
