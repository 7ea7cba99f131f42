// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Format is the format of a webhook's body.
type Format string

// The formats.
const (
	FormatEvent Format = "event" // the Change
	FormatText  Format = "text"  // {"text": "..."}
)

// body returns the body of a request.
func (f Format) body(c Change) ([]byte, error) {
	var body any = c
	switch f {
	case FormatEvent:
	case FormatText:
		body = map[string]any{"text": c.text()}
	default:
		return nil, fmt.Errorf("%w: format %q", errRefused, string(f))
	}
	data, err := json.Marshal(body)
	if err == nil && len(data) > maxBody {
		err = fmt.Errorf("%w: %d bytes, at most %d", outside.ErrTooLarge, len(data), maxBody)
	}
	return data, err
}

const (
	maxLines = 20  // of a message, after the first
	maxLine  = 300 // bytes
)

// text returns the change for people in a chat: the node and its state, then a line for each image.
func (c Change) text() string {
	first := fmt.Sprintf("%s: %s", c.Node, c.State)
	switch {
	case c.Was != "" && c.Was != c.State:
		first += fmt.Sprintf(" (was %s)", c.Was)
	case c.Reason != "":
		first += ": " + c.Reason
	}
	lines := []string{first}
	for _, kind := range kinds {
		for _, i := range kind.of(c) {
			lines = append(lines, kind.name+": "+i.text())
		}
	}
	if more := len(lines) - 1 - maxLines; more > 0 {
		lines = append(lines[:1+maxLines], fmt.Sprintf("and %d more", more))
	}
	for n, line := range lines {
		lines[n] = plain.Replace(outside.Line(line, maxLine))
	}
	return strings.Join(lines, "\n")
}

func (i Item) text() string {
	parts := []string{i.Image}
	switch {
	case i.From != "" && i.To != "":
		parts = append(parts, i.From, "to", i.To)
	default:
		parts = append(parts, i.From+i.To)
	}
	if i.Change != "" {
		parts = append(parts, "("+i.Change+")")
	}
	if i.PodManifest != "" {
		parts = append(parts, "in", i.PodManifest)
	}
	text := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
	if i.Reason != "" {
		text += ": " + i.Reason
	}
	return text
}

// plain replaces characters that a chat would read as a link, or as the name of people to notify, by ones that look
// alike.
var plain = strings.NewReplacer("<", "＜", ">", "＞", "&", "＆", "@", "＠", "[", "［", "]", "］", "`", "'")
