// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/manifests"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

var splitReferences = map[string]manifests.Reference{
	"":                               {},
	"velum":                          {Name: "velum"},
	"velum:4.0.0":                    {Name: "velum", Tag: "4.0.0"},
	"sles12/velum:__TAG__":           {Name: "sles12/velum", Tag: manifests.Placeholder},
	"host:5000/ns/velum":             {Name: "host:5000/ns/velum"},
	"host:5000/ns/velum:1":           {Name: "host:5000/ns/velum", Tag: "1"},
	"host:5000/velum@" + digest:      {Name: "host:5000/velum", Digest: digest},
	"host:5000/velum:1@" + digest:    {Name: "host:5000/velum", Tag: "1", Digest: digest},
	"[2001:db8::1]:5000/a/b:2":       {Name: "[2001:db8::1]:5000/a/b", Tag: "2"},
	"host:5000":                      {Name: "host", Tag: "5000"}, // as Docker parses it
	"velum:":                         {Name: "velum:"},
	"velum@":                         {Name: "velum@"},
	":1":                             {Tag: "1"},
	"a@b@c":                          {Name: "a", Digest: "b@c"},
	"registry.suse.com/caasp/v4/a:1": {Name: "registry.suse.com/caasp/v4/a", Tag: "1"},
}

func TestSplitReference(t *testing.T) {
	t.Parallel()
	for text, want := range splitReferences {
		assert.Equal(t, want, manifests.SplitReference(text), "%q", text)
		assert.Equal(t, text, want.String())
	}
}

func TestSplitReferenceKeepsTheText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[a-z:/@.]{0,20}`).Draw(t, "text")
		require.Equal(t, s, manifests.SplitReference(s).String())
	})
}

var references = map[string]bool{
	"a": true, "a:1": true, "a/b/c:1": true, "localhost/a": true, "Host.Example:5000/a/b:T": true,
	"[2001:db8::1]:5000/a": true, "a__b/c--d.e:_x": true, "a_b": true, "r/a:" + strings.Repeat("t", 128): true,
	"A": false, "a/B": false, "a//b": false, "/a": false, "a/": false, "a:": false, "a___b": false, "-a": false, "a-": false,
	"a b": false, "a:b c": false, "a:-1": false, "r/a:" + strings.Repeat("t", 129): false, "https://a/b:1": false,
	"$(IMAGE)": false, "a:1.0+2": false, strings.Repeat("a", 256): false, "host:port/a": false,
}

// Editable, and the references that Render accepts, follow this grammar.
func TestReferenceGrammar(t *testing.T) {
	t.Parallel()
	for text, want := range references {
		p, err := manifests.Parse([]byte(pod("'" + text + "'")))
		require.NoError(t, err)
		assert.Equal(t, want, p.Images[0].Editable, "%q: %s", text, p.Images[0].Reason)
	}
}

var rewritten = []struct {
	name     string
	rewrites []manifests.Rewrite
	from, to string
}{
	{"component boundary", []manifests.Rewrite{{"sles12", "r.example/sles12"}}, "sles12/a:1", "r.example/sles12/a:1"},
	{"longer component", []manifests.Rewrite{{"sles12", "r.example/sles12"}}, "sles12sp5/a:1", "sles12sp5/a:1"},
	{"not in the middle", []manifests.Rewrite{{"sles12", "r.example/sles12"}}, "x/sles12/a:1", "x/sles12/a:1"},
	{"exact", []manifests.Rewrite{{"a", "r.example/b"}}, "a:1", "r.example/b:1"},
	{"longest wins, first given", []manifests.Rewrite{{"a/b", "long"}, {"a", "short"}}, "a/b/c:1", "long/c:1"},
	{"longest wins, last given", []manifests.Rewrite{{"a", "short"}, {"a/b", "long"}}, "a/b/c:1", "long/c:1"},
	{"host with port", []manifests.Rewrite{{"h:5000", "m:6000/x"}}, "h:5000/a:1", "m:6000/x/a:1"},
	{"host without its port", []manifests.Rewrite{{"h", "m"}}, "h:5000/a:1", "h:5000/a:1"},
	{"growing", []manifests.Rewrite{{"a", "a/mirror"}}, "a/b:1", "a/mirror/b:1"},
	{"growing, done", []manifests.Rewrite{{"a", "a/mirror"}}, "a/mirror/b:1", "a/mirror/b:1"},
	{"shrinking", []manifests.Rewrite{{"a/b", "a"}}, "a/b/c:1", "a/c:1"},
	{"shrinking twice", []manifests.Rewrite{{"a/b", "a"}}, "a/b/b/c:1", "a/c:1"},
	{"to itself", []manifests.Rewrite{{"a", "a"}}, "a/b:1", "a/b:1"},
	{"no tag", []manifests.Rewrite{{"a", "m"}}, "a/b", "m/b"},
	{"digest stays", []manifests.Rewrite{{"a", "m"}}, "a/b@" + digest, "a/b@" + digest},
}

func TestRewrites(t *testing.T) {
	t.Parallel()
	for _, tc := range rewritten {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := manifests.Overrides{Rewrites: tc.rewrites}
			r, err := renderBytes([]byte(pod(tc.from)), o)
			require.NoError(t, err)
			assert.Equal(t, pod(tc.to), string(r.Data))
			checkRendered(t, []byte(pod(tc.from)), r, o)
			require.NoError(t, manifests.CheckRewrites(tc.rewrites))
			if from := manifests.SplitReference(tc.from); from.Digest == "" {
				assert.Equal(t, manifests.SplitReference(tc.to).Name, manifests.Rewritten(from.Name, tc.rewrites))
			}
		})
	}
}

var long = strings.Repeat("b", 256)

var badOverrides = map[string]struct {
	overrides manifests.Overrides
	want      string
}{
	"empty from":           {manifests.Overrides{Rewrites: []manifests.Rewrite{{"", "b"}}}, `rewrite =b: "" is no repository or leading part of one`},
	"empty to":             {manifests.Overrides{Rewrites: []manifests.Rewrite{{"a", ""}}}, `rewrite a=: "" is no repository or leading part of one`},
	"trailing slash":       {manifests.Overrides{Rewrites: []manifests.Rewrite{{"a/", "b"}}}, `rewrite a/=b: "a/" is no repository or leading part of one`},
	"with a tag":           {manifests.Overrides{Rewrites: []manifests.Rewrite{{"a/b:1", "b"}}}, `rewrite a/b:1=b: "a/b:1" is no repository or leading part of one`},
	"twice":                {manifests.Overrides{Rewrites: []manifests.Rewrite{{"a", "b"}, {"a", "c"}}}, "rewrite a=c: a is rewritten twice"},
	"chain":                {manifests.Overrides{Rewrites: []manifests.Rewrite{{"a", "b/x"}, {"b", "c"}}}, "rewrite a=b/x: its result is rewritten again by b=c"},
	"chain, other order":   {manifests.Overrides{Rewrites: []manifests.Rewrite{{"b", "c"}, {"a", "b"}}}, "rewrite a=b: its result is rewritten again by b=c"},
	"chain, deeper from":   {manifests.Overrides{Rewrites: []manifests.Rewrite{{"a", "b"}, {"b/x", "c"}}}, "rewrite a=b: its result is rewritten again by b/x=c"},
	"swap":                 {manifests.Overrides{Rewrites: []manifests.Rewrite{{"a", "b"}, {"b", "a"}}}, "rewrite a=b: its result is rewritten again by b=a"},
	"unknown pull policy":  {manifests.Overrides{PullPolicy: "always"}, `pull policy "always": want Always, IfNotPresent or nothing`},
	"pull policy Never":    {manifests.Overrides{PullPolicy: "Never"}, `pull policy "Never": want Always, IfNotPresent or nothing`},
	"tag with a space":     {manifests.Overrides{Tag: always("1 #")}, `line 7: spec.containers[0].image: "a:1 #" is no tagged image reference`},
	"tag with a newline":   {manifests.Overrides{Tag: always("1\nx: y")}, `line 7: spec.containers[0].image: "a:1\nx: y" is no tagged image reference`},
	"tag with a digest":    {manifests.Overrides{Tag: always("1@" + digest)}, `line 7: spec.containers[0].image: "a:1@` + digest + `" is no tagged image reference`},
	"empty tag":            {manifests.Overrides{Tag: always("")}, `line 7: spec.containers[0].image: "a" is no tagged image reference`},
	"placeholder as a tag": {manifests.Overrides{Tag: always(manifests.Placeholder)}, "no tag is known for __TAG__: line 7: spec.containers[0].image: a:1"},
	"brackets need quotes": {manifests.Overrides{Rewrites: []manifests.Rewrite{{"a", "[2001:db8::1]:5000/a"}}}, `line 7: value "[2001:db8::1]:5000/a:1": needs quotes, and there are none to keep`},
	"name too long":        {manifests.Overrides{Rewrites: []manifests.Rewrite{{"a", long}}}, "rewrite a=" + long + `: "` + long + `" is no repository or leading part of one`},
}

func always(tag string) func(string, manifests.Image) (string, bool) {
	return func(string, manifests.Image) (string, bool) { return tag, true }
}

func TestRenderRejectsOverrides(t *testing.T) {
	t.Parallel()
	for name, tc := range badOverrides {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := renderBytes([]byte(pod("a:1")), tc.overrides)
			require.EqualError(t, err, tc.want)
			assert.Empty(t, r)
		})
	}
}

// null means that there is no image, as to kubelet.
func TestNullIsNoImage(t *testing.T) {
	t.Parallel()
	for _, text := range []string{pod("~"), pod("null"), pod("Null"), pod(""), jsonPod("", "null")} {
		p, err := manifests.Parse([]byte(text))
		require.NoError(t, err)
		assert.Empty(t, p.Images[0].Reference, text)
		assert.Equal(t, manifests.ReasonEmpty, p.Images[0].Reason, text)
	}
	p, err := manifests.Parse([]byte(podHead + "  - {name: ~, image: a:1, imagePullPolicy: ~}\n  restartPolicy: ~\n"))
	require.NoError(t, err)
	assert.Empty(t, p.Images[0].Container)
	assert.Empty(t, p.Images[0].PullPolicy)
	assert.False(t, p.Once)
}
