// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/manifests"
)

func jsonPod(metadata, image string) string {
	return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"` + metadata +
		`}, "spec": {"containers": [{"name": "a", "image": ` + image + `}]}}`
}

// Kubelet reads a file that starts with a brace by the rules of encoding/json (k8s.io/apimachinery v0.34.4,
// pkg/util/yaml, ToJSON; sigs.k8s.io/json), some of which a YAML parser lacks. Every byte outside the image is kept.
func TestJSONIsParsedAsJSON(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"escaped slashes":        jsonPod("", `"r.example\/a:1"`),
		"escaped letters":        jsonPod("", `"r.example/\u0061:1"`),
		"surrogate pairs":        jsonPod(`, "annotations": {"a": "deployed \ud83d\ude00"}`, `"r.example/a:1"`),
		"half a surrogate pair":  jsonPod(`, "annotations": {"a": "\ud83d"}`, `"r.example/a:1"`),
		"control characters":     jsonPod(`, "annotations": {"a": "\b\f\u0000\u001f"}`, `"r.example/a:1"`),
		"characters of YAML":     jsonPod(`, "annotations": {"a": "\u2028 `+"\u2028\u0085\x7f"+` # & * ' % @"}`, `"r.example/a:1"`),
		"other scripts":          jsonPod(`, "annotations": {"ä\"b": "日本😀"}`, `"r.example/a:1"`),
		"tabs":                   strings.ReplaceAll(jsonPod("", `"r.example/a:1"`), " ", "\n\t"),
		"no white space":         strings.ReplaceAll(jsonPod("", `"r.example/a:1"`), " ", ""),
		"carriage returns":       strings.ReplaceAll(jsonPod("", `"r.example/a:1"`), " ", "\r\n"),
		"space around":           " \t\r\n" + jsonPod("", `"r.example/a:1"`) + "\n\n",
		"large and odd numbers":  jsonPod(`, "x": [1e400, 123456789012345678901234567890, -0, 1E+2, 0.10]`, `"r.example/a:1"`),
		"words of YAML":          jsonPod(`, "annotations": {"<<": "yes", "a": "~", "b": "0x10"}, "x": [true, false, null, {}, []]`, `"r.example/a:1"`),
		"what looks like a mark": jsonPod(`, "annotations": {"a": "\n---\n... {}"}`, `"r.example/a:1"`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := manifests.Parse([]byte(text))
			require.NoError(t, err)
			assert.Equal(t, "default/p", f.ID())
			require.Len(t, f.Images, 1)
			img := f.Images[0]
			assert.Equal(t, "r.example/a:1", img.Reference)
			require.True(t, img.Editable, img.Reason)

			tag := func(string, manifests.Image) (string, bool) { return "2", true }
			out, err := f.Render(manifests.Overrides{Tag: tag, PullPolicy: manifests.PullAlways}, nil)
			require.NoError(t, err)
			at := strings.LastIndex(text, `"r.`)
			end := at + 1 + strings.Index(text[at+1:], `"`) + 1
			assert.Equal(t, text[:at]+`"r.example/a:2", "imagePullPolicy": "Always"`+text[end:], string(out.Data))
			again, err := out.Render(manifests.Overrides{Tag: tag, PullPolicy: manifests.PullAlways}, nil)
			require.NoError(t, err)
			assert.Empty(t, again.Changes)
		})
	}
}

func TestInvalidJSONIsRejected(t *testing.T) {
	t.Parallel()
	good := jsonPod("", `"r.example/a:1"`)
	for name, c := range map[string]struct{ text, want string }{
		"comment":            {"{ # x\n" + good[1:], "read as JSON"},
		"comment in slashes": {"{ // x\n" + good[1:], "read as JSON"},
		"single quotes":      {strings.ReplaceAll(good, `"`, `'`), "read as JSON"},
		"comma at the end":   {strings.Replace(good, `}]}}`, `,}]}}`, 1), "read as JSON"},
		"second document":    {good + "\n---\n" + good, "read as JSON"},
		"second object":      {good + good, "read as JSON"},
		"cut":                {good[:len(good)-2], "read as JSON: unexpected end of JSON input"},
		"raw line in a text": {strings.Replace(good, "r.example", "r.\nexample", 1), "read as JSON"},
		"escape of YAML":     {strings.Replace(good, "r.example", `r.\x65xample`, 1), "read as JSON"},
		"not UTF-8":          {strings.Replace(good, "{", "{\n\"b\": \"\xff\",", 1), "line 2: byte 0xff is not valid UTF-8"},
		"image twice":        {strings.Replace(good, `"image"`, "\n\"image\": \"x\", \"image\"", 1), `line 2: duplicate key "image", first on line 2`},
		"key twice":          {strings.Replace(good, `"kind"`, `"kind": "x", "k\u0069nd"`, 1), `duplicate key "kind"`},
		"nested deeply":      {`{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", "nested deeper than 64 levels"},
		"many nodes":         {`{"a":[` + strings.Repeat("1,", 100_000) + "1]}", "more than 100000 nodes"},
		"list":               {`{"apiVersion": "v1", "kind": "List", "items": []}`, "line 1: kind List: kubelet runs one Pod per file, not a list"},
		"nothing":            {"{}", "line 1: not a Pod: no kind"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := manifests.Parse([]byte(c.text))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// kubelet reads a file with a byte order mark as YAML, even if a brace follows.
func TestByteOrderMarkBeforeABraceIsYAML(t *testing.T) {
	t.Parallel()
	f, err := manifests.Parse([]byte("\uFEFF" + jsonPod("", `'r.example/a:1'`)))
	require.NoError(t, err)
	assert.Equal(t, "r.example/a:1", f.Images[0].Reference)
}

// Files from other projects that the agent once could not read or edit.
func TestFilesOfOtherProjects(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"json-escaped-slashes.json": {"r.example/a:1"},
		"json-surrogates.json":      {"r.example/a:1"},
		"pod-openshift-json.yaml": {
			"quay.example.com/dev/art:4.0", "quay.example.com/dev/art:4.0",
			"quay.example.com/dev/art@sha256:0000000000000000000000000000000000000000000000000000000000000002",
			"quay.example.com/dev/art:4.0",
		},
		"pod-rke2.yaml": {"index.docker.io/rancher/hardened-kubernetes:v1.30.4-rke2r1-build20240815"},
		"pod-tag-digest.yaml": {
			"registry.example.com:5000/edge/haproxy:2.8@sha256:0000000000000000000000000000000000000000000000000000000000000001",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join("testdata", "outside", name))
			require.NoError(t, err)
			f, err := manifests.Parse(data)
			require.NoError(t, err)
			var got []string
			for _, img := range f.Images {
				got = append(got, img.Reference)
			}
			assert.Equal(t, want, got)
			out, err := f.Render(manifests.Overrides{
				Tag: func(string, manifests.Image) (string, bool) { return "9", true }, PullPolicy: manifests.PullAlways,
			}, nil)
			require.NoError(t, err)
			for i, img := range f.Images {
				ref := manifests.SplitReference(img.Reference)
				if img.Editable {
					ref.Tag = "9"
				}
				assert.Equal(t, ref.String(), out.Images[i].Reference)
			}
		})
	}
}

// The results match tryDecodeSinglePod and the store keyed by MetaNamespaceKeyFunc in k8s.io/kubernetes v1.34.4,
// pkg/kubelet/config: the last of two keys, the first document, one Pod.
func TestDefinesMatchesKubelet(t *testing.T) {
	t.Parallel()
	const head, tail = "apiVersion: v1\nkind: Pod\n", "spec: {containers: [{name: a, image: 'a:1'}]}\n"
	for text, want := range map[string]string{
		head + "metadata: {name: a}\n" + tail:                             "default/a",
		head + "metadata: {name: a, namespace: default}\n" + tail:         "default/a",
		head + "metadata: {name: a, namespace: ''}\n" + tail:              "default/a",
		head + "metadata: {name: a, namespace: kube-system}\n" + tail:     "kube-system/a",
		head + "metadata: {name: a, name: b}\n" + tail:                    "default/b",
		head + "metadata: {name: a}\nmetadata: {name: b}\n" + tail:        "default/b",
		head + "metadata: &m {name: a}\n" + tail + "x: *m\n---\n[":        "default/a",
		"x: &m {name: a}\n" + head + "metadata: {<<: *m, namespace: b}\n": "b/a",
		"x: &m {name: a}\n" + head + "metadata: {<<: [*m], name: c}\n":    "default/c",
		"x: &m {<<: *m}\n" + head + "metadata: *m\n":                      "",
		head + "metadata: {generateName: a}\n" + tail:                     "",
		head + "metadata: {name: a, uid: b1946ac9}\n" + tail:              "default/a",
		"apiVersion: v1\nKind: Pod\nmetadata: {name: a}\n" + tail:         "default/a",
		`{"apiVersion": "v1", "KIND": "Pod", "metadata": {"name": "a"}}`:  "default/a",
		head + "metadata: {name: a, namespace: null}\n" + tail:            "default/a",
		head + "metadata: {name: a, namespace: ~}\n" + tail:               "default/a",
		head + "metadata: {name: null}\n" + tail:                          "",
		"apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: a}}]\n": "",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n":    "",
		"kind: Pod\nmetadata: [a]\n":                                      "",
		"---\n---\n" + head + "metadata: {name: a}\n":                     "",
		head + "metadata: {name: a}\n" + tail + "--- @ text\n":            "default/a",
		head + "metadata: {name: a}\n" + tail + "---\n\t- b\n":            "default/a",
		head + "metadata: {name: a}\n" + tail + "---\r\n%b\r\n":           "default/a",
		head + "metadata: {name: a}\r" + tail + "\r--- b: c":              "default/a",
		"---\n" + head + "metadata: {name: a}\n" + tail + "...\n@\n":      "default/a",
		"# c\n---\n---\n" + head + "metadata: {name: a}\n--- b: c\n":      "",
		head + "metadata: {name: a, b: '\n---\n'}\n" + tail:               "",
		"":                                 "",
		"text":                             "",
		"{kind: Pod, metadata: {name: a}}": "",
		`{"kind": "Pod", "metadata": {"name": "a", "name": "b"}}`:                                                      "default/b",
		`{"kind": "Pod", "metadata": {"name": "a", "namespace": "\u0062"}} x`:                                          "",
		`{"kind": "Pod", "metadata": {"name": "a", "Name": "b", "name": "c", "NAME": "d"}, "Metadata": {"name": "e"}}`: "default/c",
		`{"kind": "Pod", "metadata": {"name": "a"}, "metadata": {"namespace": "b"}}`:                                   "b/a",
		`{"kind": "Pod", "metadata": {"name": "a"}, "metadata": null, "metadata": {"name": null}}`:                     "default/a",
		`{"kind": "List", "kind": "Pod", "metadata": {"name": "\ud83d"}}`:                                              "default/\uFFFD",
		`{"kind": "Pod", "Kind": "List", "metadata": {"name": "` + "\xff" + `", "name": "a"}}`:                         "default/a",
		"\xff\xfe" + "k\x00":         "",
		strings.Repeat("#", 1<<20+1): "",

		strings.ReplaceAll(head+"metadata: {name: a}\n"+tail, "\n", "\r\n"): "default/a",
	} {
		assert.Equal(t, want, manifests.Defines([]byte(text)), "%.200q", text)
	}
}
