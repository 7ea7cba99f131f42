// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
	"github.com/kubic-project/image-update-agent/manifests"
)

// otherDigest differs from digest.
const otherDigest = "sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

// TestPinGolden pins the archives of testdata/pins. Each has a section "pins" (lines "KIND CONTAINER REFERENCE", after
// "template FILE" for one of testdata/templates), else a section "template". The expected result is "diff" or "error".
// DIGEST and OTHER stand for digests in pins and template.
func TestPinGolden(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/pins/*.txtar", "pins", []string{"diff", "error"},
		func(t *testing.T, sections map[string]string) map[string]string {
			t.Helper()
			pins, template := readPins(t, sections)
			return pinGolden(t, template, pins)
		})
}

var longDigests = strings.NewReplacer("DIGEST", digest, "OTHER", otherDigest)

func readPins(t *testing.T, sections map[string]string) (pins []manifests.Pinned, template []byte) {
	t.Helper()
	template = []byte(longDigests.Replace(sections["template"]))
	for line := range strings.Lines(longDigests.Replace(sections["pins"])) {
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && words[0] == "template":
			data, err := os.ReadFile(filepath.Join("testdata/templates", words[1]))
			require.NoError(t, err)
			template = data
		case len(words) == 3:
			pins = append(pins, manifests.Pinned{Kind: manifests.Kind(words[0]), Container: words[1], Reference: words[2]})
		default:
			require.FailNow(t, "unknown pin", line)
		}
	}
	return pins, template
}

func pinGolden(t *testing.T, template []byte, pins []manifests.Pinned) map[string]string {
	t.Helper()
	shortDigests := strings.NewReplacer(digest, "DIGEST", otherDigest, "OTHER")
	out, err := pinBytes(template, pins)
	if err != nil {
		assert.Empty(t, out, "no output with an error")
		return map[string]string{"error": shortDigests.Replace(err.Error()) + "\n"}
	}
	checkPinned(t, template, out, pins)
	return map[string]string{"diff": shortDigests.Replace(manifests.Diff("template", "pinned", template, out))}
}

// checkPinned checks what every successful pin must satisfy.
func checkPinned(t require.TestingT, data, out []byte, pins []manifests.Pinned) {
	before, err := manifests.Parse(data)
	require.NoError(t, err)
	after, err := manifests.Parse(out)
	require.NoError(t, err)
	require.Len(t, after.Images, len(before.Images))
	pinned := 0
	for i, img := range after.Images {
		was := before.Images[i]
		require.Equal(t, was.Path, img.Path)
		for _, pin := range pins {
			if img.Document > 0 || img.Kind != pin.Kind || img.Container != pin.Container {
				continue
			}
			pinned++
			was.Reference, was.PullPolicy = pin.Reference, manifests.PullIfNotPresent
			if before.Images[i].PullPolicy == "Never" {
				was.PullPolicy = "Never"
			}
		}
		require.Equal(t, was.Reference, img.Reference, img.Path)
		require.Equal(t, was.PullPolicy, img.PullPolicy, img.Path)
	}
	require.Equal(t, len(pins), pinned)
	equal, err := equalBytes(data, out)
	require.NoError(t, err)
	require.Equal(t, equal, string(data) == string(out))
	again, err := pinBytes(out, pins)
	require.NoError(t, err)
	require.Equal(t, string(out), string(again), "pinning twice is pinning once")
}

// pinsKept are pod manifests that a text archive cannot represent. E stands for a line ending with carriage return, PIN
// for the pinned image.
var pinsKept = map[string]struct{ data, want string }{
	"crlf":                    {head + "  - name: cE    image: a:1E    tty: trueE", head + "  - name: cE    image: PINE    imagePullPolicy: IfNotPresentE    tty: trueE"},
	"no final newline":        {podHead + "  - name: c\n    image: a:1", podHead + "  - name: c\n    image: PIN\n    imagePullPolicy: IfNotPresent"},
	"byte order mark":         {"\uFEFF" + pod("'a:1' # é"), "\uFEFF" + pod("'PIN' # é\n    imagePullPolicy: IfNotPresent")},
	"json":                    {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"a:1"}]}}`, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"PIN", "imagePullPolicy": "IfNotPresent"}]}}`},
	"another digest":          {pod("a@" + otherDigest), pod("PIN\n    imagePullPolicy: IfNotPresent")},
	"this digest, no policy":  {pod("PIN"), pod("PIN\n    imagePullPolicy: IfNotPresent")},
	"this digest, and Always": {pod("PIN\n    imagePullPolicy: 'Always'"), pod("PIN\n    imagePullPolicy: 'IfNotPresent'")},
	"this digest, and Never":  {pod("PIN\n    imagePullPolicy: Never"), pod("PIN\n    imagePullPolicy: Never")},
	"nothing to do":           {pod("PIN\n    imagePullPolicy: IfNotPresent"), pod("PIN\n    imagePullPolicy: IfNotPresent")},
	"nothing to do, shared":   {"x: &i PIN\ny: &p IfNotPresent\n" + pod("*i\n    imagePullPolicy: *p"), "x: &i PIN\ny: &p IfNotPresent\n" + pod("*i\n    imagePullPolicy: *p")},
}

func TestPinKeepsEveryOtherByte(t *testing.T) {
	t.Parallel()
	pins := pinC("r.example:5000/a/b:1.0-rev1@" + digest)
	written := strings.NewReplacer("PIN", pins[0].Reference, "E", "\r\n")
	for name, tc := range pinsKept {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := []byte(written.Replace(tc.data))
			out, err := pinBytes(data, pins)
			require.NoError(t, err)
			assert.Equal(t, written.Replace(tc.want), string(out))
			checkPinned(t, data, out, pins)
		})
	}
}

// pinC pins the container of pod.
func pinC(reference string) []manifests.Pinned {
	return []manifests.Pinned{{Kind: manifests.KindContainer, Container: "c", Reference: reference}}
}

var pinsRefused = map[string]struct {
	data string
	pin  manifests.Pinned // an empty field means that of the container of pod
	want string
}{
	"not there":             {pod("a:1"), manifests.Pinned{Container: "d"}, "container d: not in the pod manifest"},
	"of another kind":       {pod("a:1"), manifests.Pinned{Kind: manifests.KindInit}, "initContainer c: not in the pod manifest"},
	"no name":               {podHead + "  - image: a:1\n", manifests.Pinned{Container: "-"}, "container : not in the pod manifest"},
	"there twice":           {pod("a:1") + "  volumes: [{name: c, image: {reference: a:1}}, {name: c, image: {reference: b:1}}]\n", manifests.Pinned{Kind: manifests.KindVolume}, "volume c: line 8: another one has the same name"},
	"in a later document":   {podHead + "  - {name: b, image: a:1}\n---\n" + pod("a:1"), manifests.Pinned{}, "container c: not in the pod manifest"},
	"text":                  {pod("a:1\n    args: [--image=a:1]"), manifests.Pinned{Kind: manifests.KindArgument}, "argument c: not a kind that is pinned"},
	"ephemeral":             {pod("a:1"), manifests.Pinned{Kind: manifests.KindEphemeral}, "ephemeralContainer c: not a kind that is pinned"},
	"nothing":               {pod("a:1"), manifests.Pinned{Reference: "a"}, `container c: "a" is no image reference with a digest or a tag`},
	"short digest":          {pod("a:1"), manifests.Pinned{Reference: "a@sha256:12"}, `container c: "a@sha256:12" is no image reference with a digest or a tag`},
	"no repository":         {pod("a:1"), manifests.Pinned{Reference: "A@" + digest}, `container c: "A@DIGEST" is no image reference with a digest or a tag`},
	"line break":            {pod("'a:1'"), manifests.Pinned{Reference: "a\n@" + digest}, `container c: "a\n@DIGEST" is no image reference with a digest or a tag`},
	"no image":              {podHead + "  - name: c\n", manifests.Pinned{}, "container c: line 6: spec.containers[0].image: not to be pinned: empty"},
	"number":                {pod("4.0"), manifests.Pinned{}, "container c: line 7: spec.containers[0].image: not to be pinned: not-a-string"},
	"block scalar":          {pod("|-\n      a:1"), manifests.Pinned{}, "container c: line 7: spec.containers[0].image: not to be pinned: block-scalar"},
	"no reference":          {pod("'{{ x }}'"), manifests.Pinned{}, "container c: line 7: spec.containers[0].image: not to be pinned: not-a-reference"},
	"several lines":         {pod("a:1\n      b"), manifests.Pinned{}, "container c: line 7: spec.containers[0].image: not to be pinned: several-lines"},
	"several lines, digest": {pod("a@x\n      b"), manifests.Pinned{}, "line 7: a plain scalar over several lines"},
	"shared":                {"x: &i a:1\n" + pod("*i"), manifests.Pinned{}, "line 8: spec.containers[0].image: not to be pinned: shared-anchor"},
	"shared, digest":        {"x: &i a@" + otherDigest + "\n" + pod("*i"), manifests.Pinned{}, "line 8: spec.containers[0].image: not to be pinned: shared-anchor"},
	"shared with another":   {pod("&i a:1") + "  - {name: d, image: *i}\n", manifests.Pinned{}, "line 7: spec.containers[0].image: not to be pinned: shared-anchor"},
	"policy shared":         {"x: &p Always\n" + pod("a:1\n    imagePullPolicy: *p"), manifests.Pinned{}, "line 8: spec.containers[0].image: not to be pinned: pull-policy-shared"},
	"policy without place":  {podHead + "  - {name: c, <<: {image: a:1}}\n", manifests.Pinned{}, "line 6: spec.containers[0].image: not to be pinned: pull-policy-shared"},
	"policy unknown":        {pod("a:1\n    imagePullPolicy: Sometimes"), manifests.Pinned{}, "line 7: spec.containers[0].image: not to be pinned: pull-policy-unknown"},
	"result too large":      {pod("a:1") + strings.Repeat("#", yamledit.MaxBytes-len(pod("a:1"))), manifests.Pinned{}, "pinned pod manifest: 1048680 bytes: larger than the limit of 1048576"},
}

func TestPinRejects(t *testing.T) {
	t.Parallel()
	for name, tc := range pinsRefused {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pin := tc.pin
			pin.Kind = cmp.Or(pin.Kind, manifests.KindContainer)
			pin.Container = strings.TrimPrefix(cmp.Or(pin.Container, "c"), "-")
			pin.Reference = cmp.Or(pin.Reference, "a@"+digest)
			out, err := pinBytes([]byte(tc.data), []manifests.Pinned{pin})
			require.EqualError(t, err, strings.ReplaceAll(tc.want, "DIGEST", digest))
			assert.Empty(t, out)
		})
	}
}

// Two containers that share one image through an anchor get the same pin or none, and no image is pinned twice.
func TestPinSharedAnchorNeedsOneReference(t *testing.T) {
	t.Parallel()
	data := []byte(podHead + "  - {name: a, image: &i sles12/velum:1}\n  - {name: b, image: *i}\n")
	a := manifests.Pinned{Kind: manifests.KindContainer, Container: "a", Reference: "sles12/velum@" + digest}
	b := manifests.Pinned{Kind: manifests.KindContainer, Container: "b", Reference: "sles12/velum@" + otherDigest}
	_, err := pinBytes(data, []manifests.Pinned{a, b})
	require.EqualError(t, err, "line 6: spec.containers[0].image: not to be pinned: shared-anchor")
	_, err = pinBytes(data, []manifests.Pinned{a, a})
	require.EqualError(t, err, "container a: to be pinned twice")
	b.Reference = a.Reference
	out, err := pinBytes(data, []manifests.Pinned{b, a})
	require.NoError(t, err)
	checkPinned(t, data, out, []manifests.Pinned{a, b})
}

func TestPinWithoutPins(t *testing.T) {
	t.Parallel()
	data := []byte(pod("sles12/velum:1"))
	out, err := pinBytes(data, nil)
	require.NoError(t, err)
	assert.Equal(t, string(data), string(out))
	out[0] = '#'
	assert.Equal(t, byte('a'), data[0], "the caller's bytes are not shared")
}

// pinImages are references and their pins; a pair of equal texts is an image that is not pinned.
var pinImages = [][2]string{
	{"sles12/velum:2-rev1", "sles12/velum:2-rev1@" + digest},
	{"sles12/mariadb", "r.example/new/mariadb:10.0.35-rev2@" + otherDigest},
	{"registry01:5000/ns/pause@" + digest, "registry01:5000/ns/pause@" + otherDigest},
	{"sles12/velum:2-rev1@" + digest, "sles12/velum:2-rev1@" + digest + " "}, // only the policy changes
	{"sles12/velum:2-rev1", "sles12/velum:2-rev1"},
	{"sles12/velum@" + digest, "sles12/velum@" + digest},
}

// In many YAML styles, every byte outside the pinned scalars is kept, and pinning is idempotent.
func TestPinOverStyles(t *testing.T) {
	t.Parallel()
	policies := map[string]string{"Always": "IfNotPresent", "IfNotPresent": "IfNotPresent", "Never": "Never"}
	rapid.Check(t, func(t *rapid.T) {
		w := &twin{t: t, images: pinImages, policyAfter: policies}
		data, want := w.pod()
		pins := rapid.Permutation(w.pins).Draw(t, "pins")
		out, err := pinBytes([]byte(data), pins)
		require.NoError(t, err, "%s", data)
		require.Equal(t, want, string(out))
		checkPinned(t, []byte(data), out, pins)
	})
}

// FuzzPin checks that Pin fails or returns a pod manifest that differs only in the pinned images.
func FuzzPin(f *testing.F) {
	seeds(f)
	for _, tc := range pinsKept {
		f.Add([]byte(strings.NewReplacer("PIN", "a@"+digest, "E", "\r\n").Replace(tc.data)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pod, err := manifests.Parse(data)
		if err != nil {
			_, err = pinBytes(data, nil)
			require.Error(t, err)
			return
		}
		var pins []manifests.Pinned
		for i, img := range pod.Images {
			switch img.Kind {
			case manifests.KindContainer, manifests.KindInit, manifests.KindVolume:
				if img.Document == 0 && i%3 < 2 {
					pins = append(pins, manifests.Pinned{Kind: img.Kind, Container: img.Container, Reference: "r.example/x:2@" + digest})
				}
			}
		}
		out, err := pinBytes(data, pins)
		if err != nil {
			require.Empty(t, out)
			return
		}
		checkPinned(t, data, out, pins)
	})
}
