// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Format is the format of a webhook's body.
type Format string

// The formats.
const (
	FormatEvent  Format = "event"  // the Change
	FormatText   Format = "text"   // {"text": "..."}
	FormatTeams  Format = "teams"  // an Adaptive Card in a message
	FormatMatrix Format = "matrix" // m.room.message of the client-server API
)

// body returns the body of a request.
func (f Format) body(c Change) ([]byte, error) {
	var body any = c
	switch f {
	case FormatEvent:
	case FormatText:
		body = map[string]any{"text": c.text()}
	case FormatTeams:
		body = card(c.text())
	case FormatMatrix:
		body = map[string]any{"msgtype": "m.notice", "body": c.text()}
	default:
		return nil, fmt.Errorf("%w: format %q", errRefused, string(f))
	}
	data, err := json.Marshal(body)
	if err == nil && len(data) > maxBody {
		err = fmt.Errorf("%w: %d bytes, at most %d", outside.ErrTooLarge, len(data), maxBody)
	}
	return data, err
}

// request returns how to send a body. Matrix requires an id in the path, by which it drops duplicate messages.
func (f Format) request(at *url.URL, id string) (method string, to *url.URL) {
	if f == FormatMatrix {
		return http.MethodPut, at.JoinPath(id)
	}
	return http.MethodPost, at
}

// card returns a Teams message (https://adaptivecards.io/explorer/TextBlock.html). Each line is a block.
func card(text string) any {
	blocks := []any{}
	for line := range strings.SplitSeq(text, "\n") {
		blocks = append(blocks, map[string]any{"type": "TextBlock", "text": line, "wrap": true})
	}
	return map[string]any{"type": "message", "attachments": []any{map[string]any{
		"contentType": "application/vnd.microsoft.card.adaptive",
		"content": map[string]any{
			"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
			"body": blocks,
		},
	}}}
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
