// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// arguments records images in a container's command and args.
func (f *finder) arguments(c *yaml.Node, name, path string) {
	for _, field := range []string{"command", "args"} {
		list, _ := yamledit.Get(c, field)
		previous := ""
		for i, item := range children(list.Value) {
			word := stringOf(item)
			hint, value, isFlag := strings.Cut(word, "=")
			if !strings.HasPrefix(word, "-") || !isFlag {
				hint, value = previous, word
			}
			previous = ""
			if strings.HasPrefix(word, "-") && !isFlag {
				previous = word // its value is the next word
			}
			f.text(KindArgument, name, fmt.Sprintf("%s.%s[%d]", path, field, i), item, hint, value)
		}
	}
}

// environment records images in a container's env.
func (f *finder) environment(c *yaml.Node, name, path string) {
	list, _ := yamledit.Get(c, "env")
	for i, item := range children(list.Value) {
		if value, ok := yamledit.Get(item, "value"); ok {
			at := fmt.Sprintf("%s.env[%d].value", path, i)
			f.text(KindEnvironment, name, at, value.Value, text(item, "name"), stringOf(value.Value))
		}
	}
}

func children(list *yaml.Node) []*yaml.Node {
	if list = yamledit.Resolve(list); list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	return list.Content
}

func (f *finder) text(kind Kind, container, path string, n *yaml.Node, hint, value string) {
	reason := ReasonArgument
	switch {
	case f.document > 0:
		reason = ReasonLaterDocument
	case kind == KindEnvironment:
		reason = ReasonEnvironment
	}
	for _, reference := range imagesIn(hint, value) {
		f.sites = append(f.sites, site{})
		f.Images = append(f.Images, Image{
			Path: path, Document: f.document, Line: n.Line, Column: n.Column,
			Container: container, Kind: kind, Reference: reference, Reason: reason,
		})
	}
}

// withPlaceholder matches words that contain the placeholder.
var withPlaceholder = lazyregexp.New(`[\w./:@-]*` + Placeholder + `[\w./:@-]*`)

// imagesIn finds the images in a text: every word with the placeholder, or else the whole text if it is a tagged or
// pinned reference with a registry host, or any reference whose name (hint) contains "image". A wrong guess only costs
// a line of output.
func imagesIn(hint, value string) []string {
	if found := withPlaceholder().FindAllString(value, -1); found != nil {
		return found
	}
	ref, hint := SplitReference(value), strings.ToLower(hint)
	pinned := ref.Tag != "" || ref.Digest != ""
	switch {
	case !ref.valid():
		return nil
	case ref.hasHost() && pinned,
		strings.HasSuffix(hint, "image"),
		strings.Contains(hint, "image") && (pinned || strings.Contains(ref.Name, "/")):
		return []string{value}
	}
	return nil
}
