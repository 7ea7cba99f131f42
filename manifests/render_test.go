// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
	"github.com/kubic-project/image-update-agent/manifests"
)

var velum = manifests.Overrides{Tag: tagsFrom(map[string]string{"sles12/velum": "2-rev1"}), PullPolicy: manifests.PullAlways}

// head is podHead with the placeholder E for a line ending.
var head = strings.ReplaceAll(podHead, "\n", "E")

// bytesKept are templates that a text archive cannot represent.
var bytesKept = map[string]struct{ template, want string }{
	"crlf":                     {head + "  - name: cE    image: sles12/velum:1E    tty: trueE", head + "  - name: cE    image: sles12/velum:2-rev1E    imagePullPolicy: AlwaysE    tty: trueE"},
	"crlf, no final newline":   {head + "  - name: cE    image: sles12/velum:1", head + "  - name: cE    image: sles12/velum:2-rev1E    imagePullPolicy: Always"},
	"mixed endings":            {podHead + "  - name: c\r\n    image: sles12/velum:1\r\n    tty: true\n", podHead + "  - name: c\r\n    image: sles12/velum:2-rev1\r\n    imagePullPolicy: Always\r\n    tty: true\n"},
	"policy null":              {podHead + "  - image: sles12/velum:1\n    imagePullPolicy: ~ # a\n", podHead + "  - image: sles12/velum:2-rev1\n    imagePullPolicy: Always # a\n"},
	"policy null in words":     {podHead + "  - {image: sles12/velum:1, imagePullPolicy: null}\n", podHead + "  - {image: sles12/velum:2-rev1, imagePullPolicy: Always}\n"},
	"policy without a value":   {podHead + "  - image: sles12/velum:1\n    imagePullPolicy:\n    tty: true\n", podHead + "  - image: sles12/velum:2-rev1\n    imagePullPolicy: Always\n    tty: true\n"},
	"the same before spaces":   {podHead + "  - image: sles12/velum:1\n    'imagePullPolicy' :  # a\n", podHead + "  - image: sles12/velum:2-rev1\n    'imagePullPolicy' : Always  # a\n"},
	"the same at the end":      {podHead + "  - image: sles12/velum:1\n    imagePullPolicy:", podHead + "  - image: sles12/velum:2-rev1\n    imagePullPolicy: Always"},
	"the same in flow style":   {podHead + "  - {image: sles12/velum:1, imagePullPolicy: }\n", podHead + "  - {image: sles12/velum:2-rev1, imagePullPolicy: Always }\n"},
	"the same in short":        {podHead + "  - {image: sles12/velum:1, \"imagePullPolicy\":}\n", podHead + "  - {image: sles12/velum:2-rev1, \"imagePullPolicy\": Always}\n"},
	"policy null in JSON":      {jsonPod("", `"sles12/velum:1", "imagePullPolicy": null`), jsonPod("", `"sles12/velum:2-rev1", "imagePullPolicy": "Always"`)},
	"policy null, tagged":      {podHead + "  - image: sles12/velum:1\n    imagePullPolicy: !!null ~\n", podHead + "  - image: sles12/velum:2-rev1\n    imagePullPolicy: !!null ~\n"},
	"policy null, one key":     {podHead + "  - {image: sles12/velum:1, imagePullPolicy}\n", podHead + "  - {image: sles12/velum:2-rev1, imagePullPolicy}\n"},
	"policy null, shared":      {podHead + "  - image: sles12/velum:1\n    imagePullPolicy: &n ~\n    tty: *n\n", podHead + "  - image: sles12/velum:2-rev1\n    imagePullPolicy: &n ~\n    tty: *n\n"},
	"no final newline":         {podHead + "  - image: sles12/velum:1", podHead + "  - image: sles12/velum:2-rev1\n    imagePullPolicy: Always"},
	"comment without newline":  {podHead + "  - image: sles12/velum:1 # end", podHead + "  - image: sles12/velum:2-rev1 # end\n    imagePullPolicy: Always"},
	"byte order mark":          {"\uFEFF" + pod("sles12/velum:1"), "\uFEFF" + pod("sles12/velum:2-rev1\n    imagePullPolicy: Always")},
	"byte order mark and crlf": {"\uFEFF" + head + "  - image: sles12/velum:1E", "\uFEFF" + head + "  - image: sles12/velum:2-rev1E    imagePullPolicy: AlwaysE"},
	"header and byte order":    {"\uFEFF---\n" + pod("sles12/velum:1"), "\uFEFF---\n" + pod("sles12/velum:2-rev1\n    imagePullPolicy: Always")},
	"tabs":                     {podHead + "  - name:\tc\t# c\n    image:\tsles12/velum:1\t# t\n", podHead + "  - name:\tc\t# c\n    image:\tsles12/velum:2-rev1\t# t\n    imagePullPolicy: Always\n"},
	"trailing spaces":          {podHead + "  - image: sles12/velum:1   \n    tty: true  \n\n\n", podHead + "  - image: sles12/velum:2-rev1   \n    imagePullPolicy: Always\n    tty: true  \n\n\n"},
	"multi-byte, flow":         {podHead + "  - {name: \"größe😀\", image: sles12/velum:1} # é\n", podHead + "  - {name: \"größe😀\", image: sles12/velum:2-rev1, imagePullPolicy: Always} # é\n"},
	"escapes":                  {pod(`"sles12\x2fvelum:\u0031"`), pod(`"sles12/velum:2-rev1"` + "\n    imagePullPolicy: Always")},
	"document end":             {pod("sles12/velum:1") + "...\n# behind\n", pod("sles12/velum:2-rev1\n    imagePullPolicy: Always") + "...\n# behind\n"},
	"line continuation":        {pod("\"sles12/\\\n      velum:1\""), pod("\"sles12/velum:2-rev1\"\n    imagePullPolicy: Always")},
	"nothing to do":            {pod("sles12/velum:2-rev1\n    imagePullPolicy: Always"), pod("sles12/velum:2-rev1\n    imagePullPolicy: Always")},
}

func TestRenderKeepsEveryOtherByte(t *testing.T) {
	t.Parallel()
	for name, tc := range bytesKept {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template, want := tc.template, tc.want
			if strings.Contains(template, head) {
				template, want = strings.ReplaceAll(template, "E", "\r\n"), strings.ReplaceAll(want, "E", "\r\n")
			}
			r, err := renderBytes([]byte(template), velum)
			require.NoError(t, err)
			assert.Equal(t, want, string(r.Data))
			checkRendered(t, []byte(template), r, velum)
		})
	}
}

func TestRenderPassesTheImageToTag(t *testing.T) {
	t.Parallel()
	var asked []string
	o := manifests.Overrides{
		Rewrites: []manifests.Rewrite{{From: "sles12", To: "r.example/s"}},
		Tag: func(repository string, img manifests.Image) (string, bool) {
			asked = append(asked, repository+" "+img.Reference+" "+img.Container)
			return "", false
		},
	}
	r, err := renderBytes([]byte(pod("sles12/velum:1")), o)
	require.NoError(t, err)
	assert.Equal(t, []string{"r.example/s/velum sles12/velum:1 c"}, asked)
	assert.Equal(t, pod("r.example/s/velum:1"), string(r.Data), "the rewrite is made, the tag kept")
	assert.Empty(t, r.Untouched)
}

func TestRenderWithoutOverridesChangesNothing(t *testing.T) {
	t.Parallel()
	template := []byte(pod("sles12/velum:1"))
	r, err := renderBytes(template, manifests.Overrides{})
	require.NoError(t, err)
	assert.Equal(t, string(template), string(r.Data))
	assert.Empty(t, r.Changes)
	assert.Empty(t, r.Untouched)
	r.Data[0] = '#'
	assert.Equal(t, byte('a'), template[0], "the template's bytes are not shared")
}

func TestRenderUnresolved(t *testing.T) {
	t.Parallel()
	template := podHead + "  - {name: a, image: sles12/velum:__TAG__}\n  - {name: b, image: sles12/other:__TAG__}\n"
	r, err := renderBytes([]byte(template), velum)
	var unresolved *manifests.UnresolvedError
	require.ErrorAs(t, err, &unresolved)
	require.Len(t, unresolved.Images, 1)
	assert.Equal(t, "b", unresolved.Images[0].Container)
	assert.Equal(t, 7, unresolved.Images[0].Line)
	assert.Empty(t, r, "one unresolved image withholds the pod")

	_, err = renderBytes([]byte(pod("sles12/velum:__TAG__")), manifests.Overrides{})
	require.ErrorAs(t, err, &unresolved, "also when nothing is asked for")
	_, err = renderBytes([]byte(pod("a:1")+"---\n"+pod("a:__TAG__")), manifests.Overrides{})
	require.NoError(t, err, "kubelet does not run the second document")
}

// Two containers that share one image through an anchor cannot get two tags.
func TestRenderSharedAnchorNeedsOneTag(t *testing.T) {
	t.Parallel()
	template := podHead + "  - {name: a, image: &i sles12/velum:1}\n  - {name: b, image: *i}\n"
	byContainer := func(_ string, img manifests.Image) (string, bool) {
		return map[string]string{"a": "1", "b": "2"}[img.Container], true
	}
	r, err := renderBytes([]byte(template), manifests.Overrides{Tag: byContainer})
	require.NoError(t, err)
	assert.Equal(t, template, string(r.Data))
	require.Len(t, r.Untouched, 1)
	assert.Equal(t, "b", r.Untouched[0].Container)
	assert.Equal(t, manifests.ReasonShared, r.Untouched[0].Reason)
}

// Render compares the parsed result, not only the plan.
func TestRenderChecksItsResult(t *testing.T) {
	t.Parallel()
	template := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [image: a]\n" // a pair without braces has no place for a second key
	r, err := renderBytes([]byte(template), manifests.Overrides{PullPolicy: manifests.PullAlways})
	require.ErrorContains(t, err, "rendered pod manifest: ")
	assert.Empty(t, r)
}

// The limits also apply to the result.
func TestRenderKeepsTheLimit(t *testing.T) {
	t.Parallel()
	template := pod("sles12/velum:1")
	template += strings.Repeat("#", yamledit.MaxBytes-len(template))
	r, err := renderBytes([]byte(template), velum)
	require.ErrorContains(t, err, "rendered pod manifest: ")
	require.ErrorContains(t, err, "larger than the limit")
	assert.Empty(t, r)
}

// Goroutines share parsed files. The race detector fails this test if rendering, pinning or comparing writes to one.
func TestParsedFilesAreReadOnly(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		pod("sles12/velum:1"), pod("sles12/velum:1\n    imagePullPolicy: Never"),
		podHead + "  - {name: c, image: &i sles12/velum:1, imagePullPolicy: &p IfNotPresent}\n  - {name: b, image: *i, imagePullPolicy: *p}\n",
	} {
		template, err := manifests.Parse([]byte(text))
		require.NoError(t, err)
		first, err := template.Render(velum, nil)
		require.NoError(t, err)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				r, err := template.Render(velum, nil)
				assert.NoError(t, err)
				assert.Equal(t, string(first.Data), string(r.Data))
				assert.Equal(t, first.Changes, r.Changes)
				_, err = template.Pin(pinC("sles12/velum@"+digest), manifests.PullIfNotPresent)
				assert.Equal(t, strings.Contains(text, "&i"), err != nil, "%v", err)
				assert.False(t, manifests.Equal(template, r.File))
			})
		}
		group.Wait()
		assert.Equal(t, text, string(template.Data))
	}
}

func TestRenderReusesTheParsedFileOnDisk(t *testing.T) {
	t.Parallel()
	template, err := manifests.Parse([]byte(pod("sles12/velum:1")))
	require.NoError(t, err)
	rendered, err := template.Render(velum, nil)
	require.NoError(t, err)
	disk, err := manifests.Parse(rendered.Data)
	require.NoError(t, err)
	again, err := template.Render(velum, disk)
	require.NoError(t, err)
	assert.Same(t, disk, again.File)
	assert.Equal(t, rendered.Changes, again.Changes)
	other, err := template.Render(velum, template)
	require.NoError(t, err)
	assert.Equal(t, string(rendered.Data), string(other.Data), "the template's bytes are not those of the result")
}
