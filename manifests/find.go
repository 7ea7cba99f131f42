// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"fmt"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// finder adds the images of one document to a File.
type finder struct {
	*File
	document int
}

// containerLists are the lists of a Pod's spec that hold containers.
var containerLists = [...]struct {
	field string
	kind  Kind
}{
	{"containers", KindContainer},
	{"initContainers", KindInit},
	{"ephemeralContainers", KindEphemeral},
}

func (f *finder) findImages(root *yaml.Node) error {
	spec, ok := yamledit.Get(root, "spec")
	if !ok {
		return nil
	}
	for _, list := range containerLists {
		path := "spec." + list.field
		items, err := f.list(spec.Value, list.field, path)
		if err != nil {
			return err
		}
		for i, item := range items {
			f.container(item, fmt.Sprintf("%s[%d]", path, i), list.kind)
		}
	}
	volumes, err := f.list(spec.Value, "volumes", "spec.volumes")
	if err != nil {
		return err
	}
	for i, volume := range volumes {
		if image, ok := yamledit.Get(volume, "image"); ok && yamledit.Resolve(image.Value).Kind == yaml.MappingNode {
			f.add(KindVolume, text(volume, "name"), image.Value, fmt.Sprintf("spec.volumes[%d].image", i))
		}
	}
	return nil
}

// list returns the mappings in a list field; none if it is absent or null.
func (f *finder) list(spec *yaml.Node, field, path string) ([]*yaml.Node, error) {
	got, ok := yamledit.Get(spec, field)
	if !ok || yamledit.Resolve(got.Value).ShortTag() == "!!null" {
		return nil, nil
	}
	list := yamledit.Resolve(got.Value)
	if list.Kind != yaml.SequenceNode {
		return nil, yamledit.ErrorAt(got.Value, "%s: not a list", path)
	}
	for i, item := range list.Content {
		if yamledit.Resolve(item).Kind != yaml.MappingNode {
			return nil, yamledit.ErrorAt(item, "%s[%d]: not a mapping", path, i)
		}
	}
	return list.Content, nil
}

func (f *finder) container(c *yaml.Node, path string, kind Kind) {
	name := text(c, "name")
	f.add(kind, name, c, path)
	f.arguments(c, name, path)
	f.environment(c, name, path)
}

// add adds the image of a container, or of the image field of an image volume.
func (f *finder) add(kind Kind, name string, owner *yaml.Node, path string) {
	reference, policy := "image", "imagePullPolicy"
	if kind == KindVolume {
		reference, policy = "reference", "pullPolicy"
	}
	s := site{owner: yamledit.Resolve(owner)}
	img := Image{
		Path: path + "." + reference, Document: f.document, Container: name, Kind: kind,
		Line: owner.Line, Column: owner.Column,
	}
	if field, ok := yamledit.Get(owner, policy); ok {
		s.rule, s.policy, img.PullPolicy = field.Key, field.Value, scalarText(yamledit.Resolve(field.Value))
	}
	if field, ok := yamledit.Get(owner, reference); ok {
		s.key, s.value, s.merged = field.Key, field.Value, field.Merged
		img.Line, img.Column = s.value.Line, s.value.Column
		img.Reference = scalarText(yamledit.Resolve(s.value))
	}
	img.Reason = f.reason(s.value)
	img.Editable = img.Reason == ""
	f.Images, f.sites = append(f.Images, img), append(f.sites, s)
}

// reason returns why a reference cannot be edited, apart from anchors.
func (f *finder) reason(value *yaml.Node) string {
	switch {
	case f.document > 0:
		return ReasonLaterDocument
	case value == nil:
		return ReasonEmpty
	}
	n := yamledit.Resolve(value)
	ref := SplitReference(n.Value)
	switch {
	case n.Kind == yaml.ScalarNode && scalarText(n) == "":
		return ReasonEmpty
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
		return ReasonNotString
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return ReasonBlockScalar
	case ref.Digest != "":
		return ReasonDigest
	}
	if _, _, err := f.yaml.Scalar(n); err != nil {
		return ReasonSeveralLines
	}
	if !ref.valid() {
		return ReasonNotReference
	}
	return ""
}

// Why an image, or its pull policy, is not edited. These words are part of the machine interface.
const (
	ReasonDigest        = "digest-pinned"       // has a digest: its author wants exactly this image
	ReasonEmpty         = "empty"               // no image field, or one without a value
	ReasonNotString     = "not-a-string"        // a number, list, mapping or private tag
	ReasonNotReference  = "not-a-reference"     // does not match the grammar of image references
	ReasonBlockScalar   = "block-scalar"        // image: | or image: >
	ReasonSeveralLines  = "several-lines"       // a value that spans lines
	ReasonShared        = "shared-anchor"       // an anchor shares it with a place that differs or is no image
	ReasonArgument      = "argument"            // in command or args
	ReasonEnvironment   = "environment"         // in env
	ReasonLaterDocument = "later-document"      // after the first document, the only one that kubelet runs
	ReasonNoTag         = "no-known-tag"        // no tag is known for the repository; the written one stays
	ReasonPolicyNever   = "pull-policy-never"   // an explicit Never: the image is provided by other means
	ReasonPolicyShared  = "pull-policy-shared"  // an anchor or merge key shares it, or its place
	ReasonPolicyUnknown = "pull-policy-unknown" // a pull policy that kubelet does not know
)

// ReasonTexts explains each reason to a person.
func ReasonTexts() map[string]string {
	return map[string]string{
		ReasonDigest:        "it names a digest, so kubelet starts exactly this image; remove the digest to follow the tag",
		ReasonEmpty:         "no image is written",
		ReasonNotString:     "the image is not a string",
		ReasonNotReference:  "it is not an image reference",
		ReasonBlockScalar:   "it is a block (| or >); write it on one line",
		ReasonSeveralLines:  "it spans several lines; write it on one line",
		ReasonShared:        "a YAML anchor shares it with a place that must not change",
		ReasonArgument:      "it is an argument of a program, and the agent does not edit arguments",
		ReasonEnvironment:   "it is in an environment variable, and the agent does not edit variables",
		ReasonLaterDocument: "kubelet runs only the first document of a file",
		ReasonNoTag:         "no tag is known for this repository",
		ReasonPolicyNever:   "the pull policy stays Never: another program provides the image",
		ReasonPolicyShared:  "the pull policy stays: a YAML anchor or merge key shares it with another container",
		ReasonPolicyUnknown: "the pull policy stays: kubelet does not know it",
	}
}

// ReasonText explains a reason to a person.
func ReasonText(reason string) string { return cmp.Or(ReasonTexts()[reason], reason) }
