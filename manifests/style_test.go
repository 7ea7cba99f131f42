// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/manifests"
)

// twin writes a template and, beside it, the bytes that rendering it with
// twinOverrides must give.
type twin struct {
	t              *rapid.T
	template, want strings.Builder
	names          int
}

var twinOverrides = manifests.Overrides{
	Tag: tagsFrom(map[string]string{
		"r.example/new/velum": "2-rev1", "r.example/new/mariadb": "10.0.35-rev2", "registry01:5000/ns/pause": "3.1",
	}),
	Rewrites:   []manifests.Rewrite{{From: "sles12", To: "r.example/new"}},
	PullPolicy: manifests.PullAlways,
}

// twinImages are references with what becomes of them; the same text twice is
// an image that is not edited.
var twinImages = [][2]string{
	{"sles12/velum:__TAG__", "r.example/new/velum:2-rev1"},
	{"sles12/mariadb", "r.example/new/mariadb:10.0.35-rev2"},
	{"registry01:5000/ns/pause:3.0", "registry01:5000/ns/pause:3.1"},
	{"r.example/new/velum:2-rev1", "r.example/new/velum:2-rev1 "}, // right already, policy still due
	{"sles12/velum@" + digest, "sles12/velum@" + digest},
}

func (w *twin) both(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	w.template.WriteString(s)
	w.want.WriteString(s)
}

func (w *twin) edit(from, to string) {
	w.template.WriteString(from)
	w.want.WriteString(to)
}

func (w *twin) pick(label string, from ...string) string {
	return rapid.SampledFrom(from).Draw(w.t, label)
}

func (w *twin) flip(label string) bool { return rapid.Bool().Draw(w.t, label) }

// image returns a reference, what becomes of it, and whether it is edited.
func (w *twin) image() (from, to string, edited bool) {
	pair := rapid.SampledFrom(twinImages).Draw(w.t, "image")
	return pair[0], strings.TrimSpace(pair[1]), pair[0] != pair[1]
}

var policyAfter = map[string]string{"Always": "Always", "IfNotPresent": "Always", "Never": "Never", "Sometimes": "Sometimes"}

// flow writes one container or volume in flow style, without its line's end.
func (w *twin) flow(reference, policy string) {
	q := w.pick("quote", "", "'", "\"")
	from, to, edited := w.image()
	w.both("{")
	w.both("%s", w.pick("front", "", "tty: true, ", "\"größe 😀\": [x, {image: y}], ", "\n        "))
	w.both("%s: ", reference)
	w.edit(q+from+q, q+to+q)
	if w.flip("policy") {
		old := w.pick("old", "Always", "IfNotPresent", "Never")
		w.both("%s, %s: ", w.pick("space", "", " "), policy)
		w.policy(old, edited)
	} else if edited {
		w.edit("", ", "+policy+": Always")
	}
	w.both("%s}", w.pick("behind", "", " ", " ,", ", stdin: false", " # image: x\n      "))
}

func (w *twin) policy(old string, edited bool) {
	if edited {
		w.edit(old, policyAfter[old])
		return
	}
	w.both("%s", old)
}

// block writes one container in block style behind its dash; indent is that of
// its keys.
func (w *twin) block(indent, dash, reference, policy string) {
	lines := []string{"name", "image"}
	hasPolicy := w.flip("policy")
	if hasPolicy {
		lines = append(lines, "policy")
	}
	lines = append(lines, w.pick("extra", "script", "block", "args", "env", "comment"))
	from, to, edited := w.image()
	for i, line := range rapid.Permutation(lines).Draw(w.t, "order") {
		lead := indent
		if i == 0 {
			lead = dash
		}
		switch line {
		case "name":
			w.names++
			w.both("%sname: c%d\n", lead, w.names)
		case "image":
			w.blockImage(lead, indent, reference, policy, from, to, edited && !hasPolicy)
		case "policy":
			w.both("%s%s: ", lead, policy)
			w.policy(w.pick("old", "Always", "IfNotPresent", "Never", "Sometimes"), edited)
			w.both("%s\n", w.pick("tail", "", " # image: x"))
		default:
			w.extra(line, lead, indent)
		}
	}
}

func (w *twin) blockImage(lead, indent, reference, policy, from, to string, insert bool) {
	q := w.pick("quote", "", "'", "\"")
	key := w.pick("key", reference, "'"+reference+"'", reference+" ")
	w.both("%s%s:%s", lead, key, w.pick("gap", " ", "   ", "\t", " !!str ", fmt.Sprintf(" &x%d ", w.template.Len()), "\n"+indent+" "))
	w.edit(q+from+q, q+to+q)
	w.both("%s\n", w.pick("tail", "", " ", " # image: sles12/velum:__TAG__", "\t#"))
	if insert {
		w.edit("", indent+policy+": Always\n")
	}
}

func (w *twin) extra(line, lead, indent string) {
	switch line {
	case "script":
		w.both("%scommand: [\"sh\", \"-c\", \"umask 377;\n%s   echo \\\"image: x\\\" # y;\n%s   exit 0\"]\n", lead, indent, indent)
	case "block":
		w.both("%scommand:\n%s- |%s\n%s  image: sles12/velum:1\n\n%s  imagePullPolicy: Never\n", lead, indent, w.pick("chomp", "", "-", "+"), indent, indent)
	case "args":
		w.both("%sargs: [--image=r.example/x:1, 'image: y']\n", lead)
	case "env":
		w.both("%senv:\n%s# image: z\n%s- name: IMAGE\n%s  value:\n", lead, indent, indent, indent)
	case "comment":
		w.both("%stty: true\n\n  # imagePullPolicy: Never\n%s# ünïcödé 😀\n", lead, indent)
	}
}

func (w *twin) list(field, reference, policy string) {
	outer := w.pick("list", "  ", "    ", "      ")
	w.both("  %s:%s\n", field, w.pick("tail", "", " # list"))
	for range rapid.IntRange(1, 3).Draw(w.t, "items") {
		gap := w.pick("dash", " ", "   ")
		switch {
		case reference != "image":
			w.both("%s-%sname: v\n%s %simage: ", outer, gap, outer, gap)
			w.flow(reference, policy)
			w.both("\n")
		case w.flip("flow"):
			w.both("%s-%s", outer, gap)
			w.flow(reference, policy)
			w.both("\n")
		default:
			w.block(outer+" "+gap, outer+"-"+gap, reference, policy)
		}
	}
}

// pods draws a template and its rendering.
func pods(t *rapid.T) (template, want string) {
	w := &twin{t: t}
	w.both("%s%s", w.pick("top", "", "# top\n", "---\n", "# größe\n--- # header\n"), "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n")
	if w.flip("init") {
		w.list("initContainers", "image", "imagePullPolicy")
	}
	if w.flip("volumes") {
		w.list("volumes", "reference", "pullPolicy")
	}
	w.list("containers", "image", "imagePullPolicy")
	w.both("%s", w.pick("end", "", "\n\n", "# end\n", "---\nkind: Pod\nspec: {containers: [{image: sles12/velum:__TAG__}]}\n", "...\n"))
	template, want = w.template.String(), w.want.String()
	if w.flip("no final newline") {
		template, want = strings.TrimSuffix(template, "\n"), strings.TrimSuffix(want, "\n")
	}
	if w.flip("crlf") {
		template, want = strings.ReplaceAll(template, "\n", "\r\n"), strings.ReplaceAll(want, "\n", "\r\n")
	}
	if w.flip("byte order mark") {
		template, want = "\uFEFF"+template, "\uFEFF"+want
	}
	return template, want
}

// Over many styles every byte outside the intended scalars is kept, rendering
// twice is rendering once, and the pod differs exactly when something was changed.
func TestRenderOverStyles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		template, want := pods(t)
		r, err := manifests.Render([]byte(template), twinOverrides)
		require.NoError(t, err, "%s", template)
		require.Equal(t, want, string(r.Data))
		checkRendered(t, []byte(template), r, twinOverrides)
	})
}
