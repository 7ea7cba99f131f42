// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// refusedOnPurpose are files that Salt reads and the agent rejects, with the error and the reason.
var refusedOnPurpose = []struct{ text, why string }{
	{`block mapping|key "`, "whole lines cannot be edited"},
	{`alias|anchor|merge`, "an edit would change what others refer to, or has no lines; an alias within itself has no end"},
	{`a tag that salt does not read`, "only the tags that cannot fail are known"},
	{`a tab outside a comment|tab character`, "yaml.v3 and PyYAML differ in where they allow it"},
	{`line break that is neither|byte order mark|comment that touches`, "yaml.v3 and PyYAML cut the lines differently"},
	{`second document|document end|\.\.\.`, "an edit at the end would go to another document"},
	{`not a date`, "Salt before 2018.3 drops all grains for it"},
}

// drawPieces draws a file from pieces with a special meaning in YAML.
var drawPieces = rapid.Custom(func(t *rapid.T) string {
	piece := rapid.SampledFrom([]string{
		"a", "b", "roles", "update_in_progress", "removal_in_progress", "image_update_state", "image_updates", "image_update_reason",
		"image_update_count", ": ", ": ", ":", "\n", "\n", "\n  ", "\n- ", "- ", " ", "  ", "\t", "#", " # c", "'", `"`, "[", "]",
		"{", "}", ",", "&x ", "*x", "!!str ", "!!bool ", "!!int ", "\u0085", "!t ", "|", ">-", "?", "? ", "---", "\n---\n", "...", "=", "<<", "<<: *x\n", "<<: {update_in_progress: true}\n", "yes", "On",
		"true", "TRUE", "tRue", "y", "off", "0", "1", "07", "08", "1.5", "1:20", "0b", "0x", "_", "~", "null", "\r\n", "\r", "\u2028",
		"\ufeff", "@", "`", "\\", "2020-01-01", "ä", "a: 1\n", "b:\n- c\n", "c: {d: e}\n",
	})
	return strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), "")
})

// drawBusy draws a file with busy keys, and values as people, scripts and Salt write them.
var drawBusy = rapid.Custom(func(t *rapid.T) string {
	key := rapid.SampledFrom([]string{
		"update_in_progress", `"update_in_progress"`, "'removal_in_progress'", "node_removal_in_progress", "migration_in_progress",
		"!!str update_in_progress", "&k update_in_progress", "? update_in_progress\n", "Update_In_Progress", "roles", "<<",
		"update_in_progress ", "update_in_progress:x", "a: {update_in_progress", "list:\n- update_in_progress",
	})
	value := rapid.SampledFrom([]string{
		"true", "True", "TRUE", "tRUE", "'true'", `"True"`, `"\x74rue"`, "yes", "'yes'", "on", "On", "y", "Y", "1", "false", "no", "'no'",
		"!!str true", "!!str yes", "!!bool true", "!!bool 'true'", "!!int 1", "|\n  true", "|-\n  true", ">-\n  true", "true # comment",
		"true#", "true ", "*k", "&v true", "&v {update_in_progress: true}", "*v", "[true]", "[false, on]", "\n- true", "\n- 'TRUE'\n- x",
		"{true: 1}", "{'true': 1}", "{a: true}", "", "~", "\n  true", "tr\n  ue", "null", "{}", "[]", "truetrue", "t", "{update_in_progress: yes}",
	})
	var b strings.Builder
	for range rapid.IntRange(1, 4).Draw(t, "lines") {
		b.WriteString(key.Draw(t, "key") + rapid.SampledFrom([]string{": ", ": ", ": ", ":", " : "}).Draw(t, "colon") + value.Draw(t, "value") + "\n")
	}
	return b.String()
})

// Salt reads every file that the agent reads, and both agree on busy grains: whether Salt's target G@KEY:true matches.
// Each file that the agent rejects although Salt reads it has a known reason.
func TestFilesAreReadAsBySalt(t *testing.T) {
	t.Parallel()
	salt := startSalt(t)
	tried, read, asked, refused := 0, 0, 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		for _, text := range rapid.SliceOfN(rapid.OneOf(drawPieces, drawBusy), 20, 20).Draw(t, "files") {
			tried++
			libyaml, pure := salt.load(t, []byte(text))
			doc, err := parse([]byte(text))
			switch {
			case err == nil:
				require.Empty(t, libyaml.Error+pure.Error, "%q is read, and Salt drops it", text)
				require.Equal(t, plainJSON(t, libyaml.Value), plainJSON(t, pure.Value), "%q", text)
				want := libyaml.matches(t)
				require.Equal(t, want != "", doc.busy() != "", "%q: Salt matches %q, the agent holds for %q", text, want, doc.busy())
				read++
				if want != "" {
					asked++
				}
			case libyaml.Error == "" && pure.Error == "" && libyaml.isMap():
				refused[reasonOf(t, text, err)]++
			}
		}
	})
	t.Logf("%d files: %d read, %d of them ask for quiet; refused on purpose: %v", tried, read, asked, refused)
	require.Greater(t, read, tried/20)
	require.Greater(t, asked, tried/100)
}

func reasonOf(t require.TestingT, text string, err error) string {
	for _, on := range refusedOnPurpose {
		if regexp.MustCompile(on.text).MatchString(err.Error()) {
			return on.text
		}
	}
	require.Fail(t, "Salt reads it, the agent does not", "%q: %v", text, err)
	return ""
}

// isMap reports whether Salt finds grains.
func (r reading) isMap() bool { return r.Value["map"] != nil }

// matches returns the first busy grain that Salt's target GRAIN:true matches: salt.utils.data.subdict_match compares
// the text of a value, or of each element of a list, case-insensitively, and uses the keys of a mapping as its values.
func (r reading) matches(t require.TestingT) string {
	for _, key := range busyKeys {
		for _, pair := range r.pairs(t) {
			if pair[0].text(t) == key && pair[1].matchesTrue(t) {
				return key
			}
		}
	}
	return ""
}

func (r reading) pairs(t require.TestingT) (pairs [][2]value) {
	if r.isMap() {
		require.NoError(t, json.Unmarshal(r.Value["map"], &pairs))
	}
	return pairs
}

func (v value) text(t require.TestingT) (text string) {
	if v["str"] != nil {
		require.NoError(t, json.Unmarshal(v["str"], &text))
	}
	return text
}

func (v value) matchesTrue(t require.TestingT) bool {
	var items []value
	switch {
	case v["list"] != nil:
		require.NoError(t, json.Unmarshal(v["list"], &items))
		for _, item := range items {
			if item["list"] == nil && item.matchesTrue(t) {
				return true
			}
		}
		return false
	case v["map"] != nil:
		for _, pair := range (reading{Value: v}).pairs(t) {
			if pair[0].text(t) == "true" {
				return true
			}
		}
		return false
	case v["bool"] != nil:
		return string(v["bool"]) == `"True"`
	}
	return strings.EqualFold(v.text(t), "true")
}

// TestDatesMatchPyYAML compares with PyYAML's own safe loader.
func TestDatesMatchPyYAML(t *testing.T) {
	t.Parallel()
	texts := []string{"2024-02-29", "2023-02-29", "2026-1-1", "2026-01-01t1:00:00", "2026-01-01  1:00:00 Z"}
	digits := func(least, most int) *rapid.Generator[string] {
		return rapid.StringOfN(rapid.RuneFrom([]rune("0123456789")), least, most, -1)
	}
	generated := rapid.Custom(func(t *rapid.T) string {
		text := digits(3, 5).Draw(t, "year") + "-" + digits(1, 2).Draw(t, "month") + "-" + digits(1, 2).Draw(t, "day")
		if !rapid.Bool().Draw(t, "time") {
			return text
		}
		text += rapid.SampledFrom([]string{"T", "t", " ", "  "}).Draw(t, "between") +
			digits(1, 2).Draw(t, "hour") + ":" + digits(2, 2).Draw(t, "minute") + ":" + digits(2, 2).Draw(t, "second")
		return text + rapid.SampledFrom([]string{"", "Z", " Z", ".5", "+1", "-23:59", "+24:00", " +9:99", "-99"}).Draw(t, "zone")
	})
	for i := range 2000 {
		texts = append(texts, generated.Example(i))
	}
	child := exec.Command(python3, "-c", `
import sys, yaml
for line in sys.stdin:
    try:
        yaml.safe_load("a: " + line)
        print("yes")
    except ValueError:
        print("no")
`)
	child.Stdin = strings.NewReader(strings.Join(texts, "\n") + "\n")
	out, err := child.Output()
	require.NoError(t, err, "the tests need python3 and python3-yaml")
	verdicts := strings.Fields(string(out))
	require.Len(t, verdicts, len(texts))
	refused := 0
	for i, text := range texts {
		assert.Equal(t, verdicts[i] == "no", isImpossibleDate(text), "%q", text)
		if verdicts[i] == "no" {
			refused++
		}
	}
	assert.Greater(t, refused, 100)
}
