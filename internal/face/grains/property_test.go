// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// segment is a run of whole lines: foreign ones, or one key of the agent.
type segment struct {
	text string
	own  string // the key, "" for foreign lines
	same bool   // it already has the wanted value
}

// foreignValues are values of foreign keys, in the styles of people, Salt and setup scripts; each ends with a line end.
var foreignValues = []string{
	" 1\n", " 2.6\n", " yes\n", " 0644\n", " 2024-01-01\n", " 1:20\n", "\n", " ~\n", " plain text # comment\n",
	" 'single ''quoted'''\n", " \"double \\\"quoted\\\" # no comment\"\n", " \"over\n  two lines\"\n",
	"\n- a\n- b: c\n  d: e\n", "\n  - a\n  # within\n  - - b\n    - c\n", "\n  b: 1\n  c:\n    d: 2\n",
	" [a, b,\n  c]\n", " {b: c, \"d\": e}\n", " |\n  text\n  image_update_state: no key\n", " >-\n  folded\n\n  # text\n",
	" {image_update_available: true}\n", "\n  image_updates:\n  - image: x\n", " &KEY [1]\n", " ä ü\n",
}

var foreignKeys = []string{
	"roles", "'quoted key'", `"double"`, "tx_update_reboot_needed", "image_update", "image_updates_x", "x:y", "5", "-x", "Ünï", "a b",
}

// drawFile draws the segments of a valid file that has parts of said in some spelling, with Unix line breaks.
func drawFile(t *rapid.T, said, wanted Grain) []segment {
	file := []segment{{text: rapid.SampledFrom([]string{"", "", "", "\ufeff"}).Draw(t, "byte order mark")}}
	if rapid.Bool().Draw(t, "mark") {
		file = append(file, segment{text: "---\n"})
	}
	keys := append(rapid.Permutation(foreignKeys).Draw(t, "keys")[:rapid.IntRange(0, 5).Draw(t, "foreign")],
		rapid.Permutation(ownKeys).Draw(t, "own keys")[:rapid.IntRange(0, len(ownKeys)).Draw(t, "own")]...)
	for i, key := range rapid.Permutation(keys).Draw(t, "order") {
		gap := rapid.SampledFrom([]string{"", "", "", "\n", "# comment\n", "\n#: x\n\n"}).Draw(t, "gap")
		file = append(file, segment{text: gap})
		if slices.Contains(ownKeys, key) {
			file = append(file, drawOwn(t, key, said, wanted))
			continue
		}
		value := rapid.SampledFrom(foreignValues).Draw(t, "value")
		file = append(file, segment{text: key + ":" + strings.ReplaceAll(value, "KEY", fmt.Sprint("k", i))})
	}
	return append(file, segment{text: rapid.SampledFrom([]string{"", "", "\n", "# end\n"}).Draw(t, "end")})
}

// drawOwn spells a key of the agent as the agent does, as Salt's dumps do, or otherwise.
func drawOwn(t *rapid.T, key string, said, wanted Grain) segment {
	spell := quote
	form := rapid.SampledFrom([]string{"ours", "salt", "flow", "odd"}).Draw(t, "form")
	if form == "odd" || key == keyReason && said.Reason == "" || key == keyNotAllowed && len(said.NotAllowed) == 0 {
		value := rapid.SampledFrom([]string{"", " 'X y'", " 777 # more", " [1, 2]", " |\n  text", "\n  nested:\n  - a"}).Draw(t, "odd")
		return segment{text: key + ":" + value + "\n", own: key}
	}
	if form == "salt" {
		spell = saltQuote
	}
	for i, e := range said.entries() {
		if e.key != key {
			continue
		}
		same := e.lines == wanted.entries()[i].lines
		if key == keyUpdates && len(said.Updates) > 0 {
			return segment{text: spellUpdates(said, form, spell), own: key, same: same}
		}
		if key == keyState || key == keyReason {
			text := map[string]string{keyState: said.State, keyReason: said.Reason}[key]
			return segment{text: key + ": " + spell(text) + "\n", own: key, same: same}
		}
		return segment{text: e.lines, own: key, same: same}
	}
	panic("no such key")
}

func spellUpdates(g Grain, form string, spell func(string) string) string {
	order := []int{0, 1, 2, 3, 4, 5, 6}
	text, item, indent, end := keyUpdates+":\n", "- ", "\n  ", "\n"
	switch form {
	case "salt":
		order = []int{1, 4, 6, 2, 0, 5, 3} // sorted by name
	case "flow":
		text, item, indent, end = keyUpdates+": [\n", "  {", ", ", "},\n"
	}
	for _, u := range g.Updates {
		var fields []string
		for _, i := range order {
			if value := u.values()[i]; !isLeftOut(updateFields[i], value) {
				fields = append(fields, updateFields[i]+": "+spell(value))
			}
		}
		text += item + strings.Join(fields, indent) + end
	}
	if form == "flow" {
		text += " ]\n"
	}
	return text
}

// bare are strings that PyYAML dumps without quotes.
var bare = regexp.MustCompile(`^([a-z][a-z0-9./:-]*[a-z0-9]|[0-9]+\.[0-9]+\.[0-9]+[-a-z0-9.]*)$`)

func saltQuote(text string) string {
	if bare.MatchString(text) && !slices.Contains([]string{"yes", "no", "on", "off", "true", "false", "null"}, text) {
		return text
	}
	return "'" + text + "'"
}

// expectedFile replaces segments with other values by the wanted ones.
func expectedFile(file []segment, wanted Grain, newline string) string {
	var b strings.Builder
	missing := slices.Clone(ownKeys)
	for _, s := range file {
		missing = slices.DeleteFunc(missing, func(key string) bool { return key == s.own })
		if s.own == "" || s.same {
			b.WriteString(s.text)
			continue
		}
		b.WriteString(strings.ReplaceAll(ownLines(wanted, s.own), "\n", newline))
	}
	for _, key := range missing {
		if ownLines(wanted, key) == "" {
			continue
		}
		if text := b.String(); text != "" && text != "\ufeff" && !strings.HasSuffix(text, "\n") {
			b.WriteString(newline)
		}
		b.WriteString(strings.ReplaceAll(ownLines(wanted, key), "\n", newline))
	}
	return b.String()
}

func ownLines(g Grain, key string) string {
	for _, e := range g.entries() {
		if e.key == key {
			return e.lines
		}
	}
	panic("no such key")
}

// reasonRunes are characters with a special meaning in YAML, in Salt, or in UTF-8.
var reasonRunes = []rune("\t\n\r \"'\\#|>-+:,%@&*!?[]{}~=<u0aé\u0085\u2028\ufeff\ufffd\u20ac\U0001f600\x00\x7f")

func drawGrain(t *rapid.T, label string) Grain {
	word := rapid.OneOf(
		rapid.SampledFrom([]string{"", "staged", "yes", "null", "~", "1.6", "4.0.0-rev1-build1.3", "0x1f", "1:20", "=", "#", "- a", "a: b", "{}", digest, "2024-01-01", "&a", "*"}),
		rapid.StringMatching(`[a-z0-9.:/@-]{1,20}`),
	)
	update := rapid.Custom(func(t *rapid.T) Update {
		return Update{
			word.Draw(t, "image"), word.Draw(t, "change"), word.Draw(t, "from"), word.Draw(t, "to"), word.Draw(t, "digest"),
			word.Draw(t, "severity"), word.Draw(t, "fixes"),
		}
	})
	newer := rapid.Custom(func(t *rapid.T) NotAllowed {
		return NotAllowed{word.Draw(t, "image"), word.Draw(t, "tag"), word.Draw(t, "rule"), word.Draw(t, "key")}
	})
	g, err := Grain{
		Available: rapid.Bool().Draw(t, label+" available"),
		State:     word.Draw(t, label+" state"),
		Reason:    rapid.OneOf(rapid.Just(""), word, rapid.String(), rapid.StringOfN(rapid.RuneFrom(reasonRunes), 0, 300, -1)).Draw(t, label+" reason"),
		Count:     rapid.IntRange(0, 100).Draw(t, label+" count"),
		Updates:   rapid.SliceOfN(update, 0, 3).Draw(t, label+" updates"),

		NotAllowed: rapid.SliceOfN(newer, 0, 2).Draw(t, label+" not allowed"),
	}.normalized()
	require.NoError(t, err)
	return g
}

func TestPropertyOnlyTheAgentsKeysChange(t *testing.T) {
	t.Parallel()
	salt := startSalt(t)
	n := newNode(t, "")
	rapid.Check(t, func(t *rapid.T) {
		wanted := drawGrain(t, "wanted")
		said := wanted
		if rapid.Bool().Draw(t, "other") {
			said = drawGrain(t, "said")
		}
		file := drawFile(t, said, wanted)
		newline := rapid.SampledFrom([]string{"\n", "\n", "\r\n"}).Draw(t, "newline")
		for i := range file {
			file[i].text = strings.ReplaceAll(file[i].text, "\n", newline)
		}
		if rapid.Bool().Draw(t, "cut") {
			cutEnd(file, newline)
		}
		before := join(file)
		if !strings.Contains(before, "\n") {
			newline = "\n"
		}
		after := expectedFile(file, wanted, newline)

		require.NoError(t, os.WriteFile(n.path, []byte(before), 0o644))
		changed, err := n.store.Announce(t.Context(), wanted)
		require.NoError(t, err)
		require.Equal(t, after, n.content(t))
		require.Equal(t, before != after, changed)
		requireReadsAs(t, salt, before, after, wanted)
		changed, err = n.store.Announce(t.Context(), wanted)
		require.NoError(t, err)
		require.False(t, changed)
	})
}

func join(file []segment) string {
	var b strings.Builder
	for _, s := range file {
		b.WriteString(s.text)
	}
	return b.String()
}

// cutEnd removes the last line break, unless it is part of a text block's value.
func cutEnd(file []segment, newline string) {
	for i := len(file) - 1; i >= 0; i-- {
		last := &file[i]
		if last.text == "" {
			continue
		}
		if !strings.Contains(last.text, ": |") && !strings.Contains(last.text, ": >") {
			last.text = strings.TrimSuffix(last.text, newline)
		}
		return
	}
}

// An accepted file must be readable for Salt, and stay so.
func TestPropertyOnlyFilesReadableForSaltAreEdited(t *testing.T) {
	t.Parallel()
	salt := startSalt(t)
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		before := []byte(drawPieces.Draw(t, "file"))
		doc, err := parse(before)
		if err != nil {
			return
		}
		g, err := staged.normalized()
		require.NoError(t, err)
		after, err := doc.edit(g)
		if err != nil {
			return
		}
		if isNothing(before) {
			before = nil
		}
		accepted++
		requireReadsAs(t, salt, string(before), string(after), staged)
	})
	require.Positive(t, accepted)
}

// FuzzAnnounce edits any file: it is rejected, or has the grain afterwards, keeps the other entries, and is not edited
// a second time.
func FuzzAnnounce(f *testing.F) {
	for _, edit := range edits {
		f.Add([]byte(edit.before), "staged", "1.6", true)
	}
	for _, bad := range badFiles {
		if len(bad.content) < 1000 {
			f.Add([]byte(bad.content), "", "=", false)
		}
	}
	for content := range busyFiles {
		f.Add([]byte(content), "held", "", false)
	}
	f.Fuzz(func(t *testing.T, before []byte, state, text string, available bool) {
		g, err := Grain{
			Available: available, State: state, Reason: text, Count: len(text),
			Updates: []Update{{Image: text, To: state}, {Image: state, From: text, Digest: text}},
		}.normalized()
		if err != nil {
			return
		}
		doc, err := parse(before)
		if err != nil {
			return
		}
		after, err := doc.edit(g)
		if err != nil || after == nil {
			return
		}
		again, err := parse(after)
		require.NoError(t, err)
		data, err := again.edit(g)
		require.NoError(t, err)
		require.Nil(t, data)
		requireForeignLines(t, doc, before, after)
	})
}

// requireForeignLines checks that every line of others is unchanged and in order.
func requireForeignLines(t *testing.T, doc document, before, after []byte) {
	t.Helper()
	if isNothing(before) {
		return
	}
	at := 0
	keep := func(text []byte) {
		text = bytes.TrimRight(text, "\r\n")
		next := bytes.Index(after[at:], text)
		require.GreaterOrEqual(t, next, 0, "lost: %q", text)
		at += next + len(text)
	}
	from := 0
	for _, e := range doc.entries {
		if slices.Contains(ownKeys, e.Key) {
			keep(before[from:e.Start])
			from = e.End
		}
	}
	keep(before[from:])
}
