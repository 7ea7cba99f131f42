// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// What the agent follows for a tag.
const (
	followsNothing  = "nothing: no image can have such a tag, so the agent leaves the image as it is"
	followsDigest   = "nothing: kubelet starts exactly the image of a digest, so the agent leaves it as it is"
	followsNewest   = "the newest tag: the agent replaces this placeholder"
	followsRebuilds = "rebuilds of this tag only"
	followsTag      = "this tag"

	ifConverted = "if the registry has it and the agent may write the pod manifest; else this tag"
)

// followed returns what the agent follows for an image with a tag, as agent/follow and agent/source decide it.
func followed(e tags.Explanation, s tags.Scheme) string {
	switch {
	case e.Form == tags.ClassInvalid && isDigest(e.Tag):
		return followsDigest
	case e.Form == tags.ClassInvalid:
		return followsNothing
	case release.IsPlaceholder(e.Tag):
		return followsNewest
	case e.Reason != "":
		return followsRebuilds
	case e.Form == tags.ClassShort:
		return "the intermediate tag with its digest, " + ifConverted
	}
	if floating := release.Floating(e.Tag, s); floating != e.Tag {
		return floating + ", " + ifConverted
	}
	return followsTag
}

// isDigest reports whether a text that is no tag names a digest, alone or of an image.
func isDigest(text string) bool {
	return strings.HasPrefix(text, "sha256:") || manifests.SplitReference(text).Digest != ""
}

// tagIn returns the tag of an image reference, for somebody who has given that instead of the tag; empty if there is
// none.
func tagIn(text string) string {
	if tag := manifests.SplitReference(text).Tag; !isDigest(text) && tags.Classify(tag) != tags.ClassInvalid {
		return tag
	}
	return ""
}
