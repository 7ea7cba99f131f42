// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// message is a text of the page. plural is its plural form; empty if it has none.
type message struct{ text, plural string }

var (
	literal  = `"(?:[^"\\\n]|\\.)*"`
	singular = regexp.MustCompile(`\b_\(\s*(` + literal + `)\s*\)`)
	plural   = regexp.MustCompile(`\bngettext\(\s*(` + literal + `)\s*,\s*(` + literal + `)`)
	inHTML   = regexp.MustCompile(`<(\w+) translate>([^<]+)<`)
)

// holdTexts returns the daemon's texts that the page translates: the summary of each hold, and the parts of its remedy.
// For a text with a field's value it is the text before ": ".
func holdTexts() []message {
	const value = "\x00"
	var all []message
	for _, kind := range status.HoldKinds() {
		for _, h := range []status.Hold{
			{}, {Image: value, Grain: value, Until: time.Unix(1, 0)}, {By: status.ByConfiguration}, {NotAsked: true},
		} {
			summary, _ := kind.Summary(h)
			for _, part := range append([]string{summary}, strings.Split(kind.Remedy(h), "; ")...) {
				if strings.Contains(part, value) {
					part, _, _ = strings.Cut(part, ": ")
				}
				isCommand := strings.HasPrefix(part, "image-update-agent ")
				if text := (message{part, ""}); !isCommand && !slices.Contains(all, text) {
					all = append(all, text)
				}
			}
		}
	}
	return all
}

// daemonTexts returns all texts of the daemon that the page translates.
func daemonTexts() []message { return append(holdTexts(), untouchedTexts()...) }

// untouchedTexts returns why a reference in a pod manifest stays as it is.
func untouchedTexts() []message {
	var all []message
	for _, text := range manifests.ReasonTexts() {
		all = append(all, message{text, ""})
	}
	slices.SortFunc(all, func(a, b message) int { return strings.Compare(a.text, b.text) })
	return all
}

// messagesOf returns the texts of a page, sorted: the arguments of _ and ngettext in its modules, the elements with
// translate in index.html, and the label in Cockpit's menu.
func messagesOf(page string) ([]message, error) {
	found := map[message]bool{}
	names, err := filepath.Glob(filepath.Join(page, "*.js"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for _, match := range singular.FindAllStringSubmatch(string(text), -1) {
			found[message{unquote(match[1]), ""}] = true
		}
		for _, match := range plural.FindAllStringSubmatch(string(text), -1) {
			found[message{unquote(match[1]), unquote(match[2])}] = true
		}
	}
	html, err := os.ReadFile(filepath.Join(page, "index.html"))
	if err != nil {
		return nil, err
	}
	for _, match := range inHTML.FindAllStringSubmatch(string(html), -1) {
		found[message{match[2], ""}] = true
	}
	var manifest struct {
		Tools map[string]struct{ Label string }
	}
	data, err := os.ReadFile(filepath.Join(page, "manifest.json"))
	if err == nil {
		err = json.Unmarshal(data, &manifest)
	}
	if err != nil {
		return nil, fmt.Errorf("manifest.json: %w", err)
	}
	for _, tool := range manifest.Tools {
		found[message{tool.Label, ""}] = true
	}
	var all []message
	for m := range found {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b message) int { return strings.Compare(a.text, b.text) })
	return all, nil
}

// unquote parses a string literal with the common syntax of JavaScript and Go.
func unquote(literal string) string {
	text, err := strconv.Unquote(literal)
	if err != nil {
		return literal
	}
	return text
}

func template(messages []message) string {
	var text strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&text, "\nmsgid %q\n", m.text)
		if m.plural == "" {
			text.WriteString("msgstr \"\"\n")
		} else {
			fmt.Fprintf(&text, "msgid_plural %q\nmsgstr[0] \"\"\nmsgstr[1] \"\"\n", m.plural)
		}
	}
	return text.String()
}
