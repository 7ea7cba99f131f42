// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/manifests"
)

// twin builds a template and, in parallel, the bytes expected from rendering it with twinOverrides or from pinning
// pins.
type twin struct {
	t              *rapid.T
	template, want strings.Builder
	names          int
	images         [][2]string
	policyAfter    map[string]string // of an image that is edited
	kind           manifests.Kind    // the kind of the list being written
	pins           []manifests.Pinned
}

var twinOverrides = manifests.Overrides{
	Tag: tagsFrom(map[string]string{
		"r.example/new/velum": "2-rev1", "r.example/new/mariadb": "10.0.35-rev2", "registry01:5000/ns/pause": "3.1",
	}),
	Rewrites:   []manifests.Rewrite{{From: "sles12", To: "r.example/new"}},
	PullPolicy: manifests.PullAlways,
}

// twinImages are references and their results; a pair of equal texts is an image that is not edited.
var twinImages = [][2]string{
	{"sles12/velum:__TAG__", "r.example/new/velum:2-rev1"},
	{"sles12/mariadb", "r.example/new/mariadb:10.0.35-rev2"},
	{"registry01:5000/ns/pause:3.0", "registry01:5000/ns/pause:3.1"},
	{"r.example/new/velum:2-rev1", "r.example/new/velum:2-rev1 "}, // only the policy changes
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

// image returns the name of a new container, its reference, the expected one, and whether it is edited.
func (w *twin) image() (name, from, to string, edited bool) {
	w.names++
	name = fmt.Sprintf("c%d", w.names)
	pair := rapid.SampledFrom(w.images).Draw(w.t, "image")
	from, to, edited = pair[0], strings.TrimSpace(pair[1]), pair[0] != pair[1]
	if edited {
		w.pins = append(w.pins, manifests.Pinned{Kind: w.kind, Container: name, Reference: to})
	}
	return name, from, to, edited
}

var twinPolicies = map[string]string{"Always": "Always", "IfNotPresent": "Always", "Never": "Never", "Sometimes": "Sometimes"}

// flow writes one container or volume in flow style, without a line ending; head precedes it and receives its name.
func (w *twin) flow(head, reference, policy string) {
	q := w.pick("quote", "", "'", "\"")
	name, from, to, edited := w.image()
	w.both("%s{", strings.ReplaceAll(head, "NAME", name))
	if reference == "image" {
		w.both("name: %s, ", name)
	}
	w.both("%s", w.pick("front", "", "tty: true, ", "\"größe 😀\": [x, {image: y}], ", "\n        "))
	w.both("%s: ", reference)
	w.edit(q+from+q, q+to+q)
	if w.flip("policy") {
		w.both("%s, %s: ", w.pick("space", "", " "), policy)
		w.policy(edited)
	} else if edited {
		w.edit("", ", "+policy+": "+w.policyAfter["Always"])
	}
	w.both("%s}", w.pick("behind", "", " ", " ,", ", stdin: false", " # image: x\n      "))
}

func (w *twin) policy(edited bool) {
	old := w.pick("old", slices.Sorted(maps.Keys(w.policyAfter))...)
	if edited {
		w.edit(old, w.policyAfter[old])
		return
	}
	w.both("%s", old)
}

// block writes one container in block style after its dash; indent is the indentation of its keys.
func (w *twin) block(indent, dash, reference, policy string) {
	lines := []string{"name", "image"}
	hasPolicy := w.flip("policy")
	if hasPolicy {
		lines = append(lines, "policy")
	}
	lines = append(lines, w.pick("extra", "script", "block", "args", "env", "comment"))
	name, from, to, edited := w.image()
	for i, line := range rapid.Permutation(lines).Draw(w.t, "order") {
		lead := indent
		if i == 0 {
			lead = dash
		}
		switch line {
		case "name":
			w.both("%sname: %s\n", lead, name)
		case "image":
			w.blockImage(lead, indent, reference, policy, from, to, edited && !hasPolicy)
		case "policy":
			w.both("%s%s: ", lead, policy)
			w.policy(edited)
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
		w.edit("", indent+policy+": "+w.policyAfter["Always"]+"\n")
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

func (w *twin) list(kind manifests.Kind, field, reference, policy string) {
	w.kind = kind
	outer := w.pick("list", "  ", "    ", "      ")
	w.both("  %s:%s\n", field, w.pick("tail", "", " # list"))
	for range rapid.IntRange(1, 3).Draw(w.t, "items") {
		gap := w.pick("dash", " ", "   ")
		switch {
		case reference != "image":
			w.flow(outer+"-"+gap+"name: NAME\n"+outer+" "+gap+"image: ", reference, policy)
			w.both("\n")
		case w.flip("flow"):
			w.flow(outer+"-"+gap, reference, policy)
			w.both("\n")
		default:
			w.block(outer+" "+gap, outer+"-"+gap, reference, policy)
		}
	}
}

// pod draws a template and the expected result.
func (w *twin) pod() (template, want string) {
	w.both("%s%s", w.pick("top", "", "# top\n", "---\n", "# größe\n--- # header\n"), "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n")
	if w.flip("init") {
		w.list(manifests.KindInit, "initContainers", "image", "imagePullPolicy")
	}
	if w.flip("volumes") {
		w.list(manifests.KindVolume, "volumes", "reference", "pullPolicy")
	}
	w.list(manifests.KindContainer, "containers", "image", "imagePullPolicy")
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

// In many YAML styles, every byte outside the edited scalars is kept, rendering is idempotent, and the pod differs
// exactly if something was changed.
func TestRenderOverStyles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &twin{t: t, images: twinImages, policyAfter: twinPolicies}
		template, want := w.pod()
		r, err := renderBytes([]byte(template), twinOverrides)
		require.NoError(t, err, "%s", template)
		require.Equal(t, want, string(r.Data))
		checkRendered(t, []byte(template), r, twinOverrides)
	})
}
