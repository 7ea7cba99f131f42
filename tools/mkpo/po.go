// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

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
