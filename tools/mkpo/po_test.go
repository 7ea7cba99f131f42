// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/face/doctor"
)

const page = "../../cockpit"

var placeholder = regexp.MustCompile(`\$\d`)

// Every text of the page is translated into every available language, with the same placeholders; remedies may be
// translated, and are English otherwise; nothing else is translated; and Cockpit's file is up to date.
func TestTranslationsAreComplete(t *testing.T) {
	t.Parallel()
	messages, err := messagesOf(page)
	require.NoError(t, err)
	assert.Greater(t, len(messages), 150)
	files, err := filepath.Glob(page + "/po/*.po")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		entries, err := parse(string(text))
		require.NoError(t, err, file)
		var translated []message
		for _, e := range entries {
			if e.text == "" {
				continue
			}
			translated = append(translated, e.message)
			assert.Len(t, e.translations, map[bool]int{false: 1, true: 2}[e.plural != ""], "%s: %s", file, e.text)
			for _, translation := range e.translations {
				assert.NotEmpty(t, translation, "%s: %s", file, e.text)
				assert.ElementsMatch(t, placeholder.FindAllString(e.text, -1), placeholder.FindAllString(translation, -1), "%s: %s", file, e.text)
			}
		}
		assert.Subset(t, translated, append(untouchedTexts(), messages...), "%s: see mkpo messages", file)
		assert.Subset(t, append(daemonTexts(), messages...), translated, "%s: see mkpo messages", file)
		language := strings.TrimSuffix(filepath.Base(file), ".po")
		loaded, err := os.ReadFile(filepath.Join(page, "po."+language+".js"))
		require.NoError(t, err)
		assert.Equal(t, script(language, entries), string(loaded), "%s has changed: make translations", file)
	}
}

// The page shows each verdict of doctor in the language of the session.
func TestVerdictsOfDoctor(t *testing.T) {
	t.Parallel()
	messages, err := messagesOf(page)
	require.NoError(t, err)
	for _, verdict := range []string{doctor.OK, doctor.Skipped, doctor.Advice, doctor.Warn, doctor.Fail} {
		assert.True(t, slices.Contains(messages, message{verdict, ""}), verdict)
	}
}

// Remedies are translated in parts, without the values of fields.
func TestRemedies(t *testing.T) {
	t.Parallel()
	all := holdTexts()
	for _, text := range []string{"wait a minute", "or, if it left its grain behind", "or apply now: image-update-agent apply"} {
		assert.Contains(t, all, message{text, ""})
	}
	for _, m := range all {
		assert.NotRegexp(t, `^$|\x00|^image-update-agent|resume`, m.text)
	}
}

func TestMessagesOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.js":          `f(_("one"), _( "with \"quotes\"" ), ngettext("$0 pod", "$0 pods", n), x_("not this"), _(variable))`,
		"index.html":    `<title translate>Title</title><p>no</p>`,
		"manifest.json": `{"tools": {"index": {"label": "Label"}}}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	messages, err := messagesOf(dir)
	require.NoError(t, err)
	assert.Equal(t, []message{{"$0 pod", "$0 pods"}, {"Label", ""}, {"Title", ""}, {"one", ""}, {`with "quotes"`, ""}}, messages)
	assert.Contains(t, template(messages), "msgid \"$0 pod\"\nmsgid_plural \"$0 pods\"\nmsgstr[0] \"\"\n")
}

func TestParse(t *testing.T) {
	t.Parallel()
	entries, err := parse("# comment\nmsgid \"\"\nmsgstr \"\"\n\"Plural-Forms: nplurals=2; plural=n > 1;\\n\"\n\n" +
		"msgid \"a\" \n\"b\"\nmsgstr \"c\"\n\nmsgid \"d\"\nmsgid_plural \"e\"\nmsgstr[0] \"f\"\nmsgstr[1] \"<g>\"\n\nmsgid \"h\"\nmsgstr \"\"\n")
	require.NoError(t, err)
	assert.Equal(t, entry{message{"ab", ""}, []string{"c"}}, entries[1])
	lines := strings.Split(script("fr", entries), "\n")
	assert.Contains(t, lines, `  "": { "plural-forms": n => n > 1, language: "fr", "language-direction": "ltr" },`)
	assert.Contains(t, lines, `  "d": [null, "f", "<g>"],`)
	assert.False(t, slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, `"h"`) }), "it stays English")
	for text, problem := range map[string]string{
		"msgstr \"a\"\n":          "line 1: msgstr without msgid",
		"msgid \"a\"\nnonsense":   "line 2: neither a keyword nor a string",
		"msgid \"\\q\"\nmsgstr\n": "line 1:",
	} {
		_, err := parse(text)
		assert.ErrorContains(t, err, problem, text)
	}
}
