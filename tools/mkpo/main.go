// SPDX-License-Identifier: Apache-2.0

// Command mkpo generates the translations of the Cockpit page.
//
//	mkpo messages PAGE       prints a template: every text of the page and of holds, without a translation
//	mkpo js PAGE/po/LANG.po  prints the translations as Cockpit loads them: PAGE/po.LANG.js
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

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: mkpo messages PAGE | js FILE.po")
		os.Exit(2)
	}
	text, err := run(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintf(os.Stderr, "mkpo: %v\n", err)
		os.Exit(1)
	}
	if _, err := os.Stdout.WriteString(text); err != nil {
		os.Exit(1)
	}
}

func run(verb, name string) (string, error) {
	switch verb {
	case "messages":
		messages, err := messagesOf(name)
		return template(append(messages, daemonTexts()...)), err
	case "js":
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		entries, err := parse(string(text))
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		return script(strings.TrimSuffix(filepath.Base(name), ".po"), entries), nil
	default:
		return "", fmt.Errorf("%s: no such verb", verb)
	}
}

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

// entry is a text and its translations: one, or one per plural form. The entry of the empty text is the header.
type entry struct {
	message

	translations []string
}

var keyword = regexp.MustCompile(`^(msgid|msgid_plural|msgstr(?:\[\d\])?)\s+(".*")$`)

// parse parses a gettext file: messages without context, and comments.
func parse(text string) ([]entry, error) {
	var entries []entry
	var into *string
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		found := keyword.FindStringSubmatch(line)
		quoted := line
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case found != nil:
			quoted = found[2]
			if into = fieldOf(&entries, found[1]); into == nil {
				return nil, fmt.Errorf("line %d: %s without msgid", n, found[1])
			}
		case !strings.HasPrefix(line, `"`) || into == nil:
			return nil, fmt.Errorf("line %d: neither a keyword nor a string", n)
		}
		part, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", n, quoted, err)
		}
		*into += part
	}
	return entries, nil
}

// fieldOf starts a field of the last entry, or with msgid a new entry. It returns nil before the first entry.
func fieldOf(entries *[]entry, word string) *string {
	if word == "msgid" {
		*entries = append(*entries, entry{})
		return &(*entries)[len(*entries)-1].text
	}
	if len(*entries) == 0 {
		return nil
	}
	last := &(*entries)[len(*entries)-1]
	if word == "msgid_plural" {
		return &last.plural
	}
	last.translations = append(last.translations, "")
	return &last.translations[len(last.translations)-1]
}

var pluralForms = regexp.MustCompile(`plural=([^;]+);`)

// script returns Cockpit's file for a language. Texts without a translation stay English.
func script(language string, entries []entry) string {
	var text strings.Builder
	text.WriteString("// SPDX-License-Identifier: Apache-2.0\n" +
		"// Made of po/" + language + ".po by make translations.\ncockpit.locale({\n")
	for _, e := range entries {
		if e.text != "" && (len(e.translations) == 0 || e.translations[0] == "") {
			continue
		}
		if e.text == "" {
			form := "n != 1"
			if found := pluralForms.FindStringSubmatch(e.translations[0]); found != nil {
				form = found[1]
			}
			fmt.Fprintf(&text, "  \"\": { \"plural-forms\": n => %s, language: %s, \"language-direction\": \"ltr\" },\n",
				form, quote(strings.ReplaceAll(language, "_", "-")))
			continue
		}
		text.WriteString("  " + quote(e.text) + ": [null")
		for _, t := range e.translations {
			text.WriteString(", " + quote(t))
		}
		text.WriteString("],\n")
	}
	return text.String() + "});\n"
}

// quote returns a JavaScript string.
func quote(text string) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // encoding a string does not fail
	return strings.TrimSpace(out.String())
}
