// SPDX-License-Identifier: Apache-2.0

package distspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
	"github.com/kubic-project/image-update-agent/tags"
)

func TestReadTagPage(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	pages := map[string][]string{
		`{"name":"app","tags":["1.0","2.0"]}`:                           {"1.0", "2.0"},
		" {\n\"tags\" : [ \"1.0\" , \"2.0\" ] } \n":                     {"1.0", "2.0"},
		`{"name":"app","tags":null}`:                                    nil,
		`{"name":"app"}`:                                                nil,
		`{"tags":[]}`:                                                   nil,
		`{"tags":["\u0031.0",null,"","a b","\"]}"]}`:                    {"1.0", "", "", "a b", `"]}`},
		`{"\u0074ags":["1"]}`:                                           {"1"},
		`{"tags":["1"],"next":"x","n":-1.5e+3,"ok":true}`:               {"1"},
		`{"tags":["` + long + `","1"]}`:                                 {`"`, "1"},
		`{"manifest":{"tags":["9"],"x":[{"tags":["8"]}]},"tags":["1"]}`: {"1"},
		// As registry.k8s.io sends it.
		`{"child":["amd64"],"manifest":{"sha256:00":{"imageSizeBytes":"32","layerId":"","mediaType":"application/vnd.docker.distribution.manifest.v2+json","tag":["v1.2.0"],"timeCreatedMs":"0","timeUploadedMs":"1"}},"name":"kube-apiserver","tags":["v1.2.0","v1.3.0"]}`: {"v1.2.0", "v1.3.0"},
	}
	for page, want := range pages {
		got, err := readTagPage(strings.NewReader(page), 10)
		require.NoError(t, err, page)
		assert.Equal(t, want, got, page)
	}
}

// A document that is not a tag list is not an empty list.
func TestInvalidTagPages(t *testing.T) {
	t.Parallel()
	pages := map[string]string{
		``: "unexpected EOF", `{`: "unexpected EOF", `{"tags":["1"`: "unexpected EOF", `{"tags":["1"]`: "unexpected EOF", `{"tags":["1`: "unexpected EOF",
		`{"name":"a","manifest":{"x":"`: "unexpected EOF",
		`{}`:                            "no tag list", `{"errors":[{"code":"UNKNOWN"}]}`: "no tag list", `{"Tags":["1"]}`: "no tag list",
		`[]`: "no tag list", `null`: "no tag list", `"tags"`: "no tag list", `<html>`: "invalid character '<'", `no JSON`: "invalid character 'o'",
		`{"tags":"1"}`: "no tag list", `{"tags":{"1":2}}`: "no tag list", `{"tags":[1]}`: "no tag list", `{"tags":[["1"]]}`: "no tag list",
		`{"tags":["1"],"tags":["2"]}`: "twice", `{"tags":["1"]}{}`: "after the list", `{"tags":["1"]} x`: "after the list",
		`{"tags":["1" "2"]}`: "invalid character", `{"tags" ["1"]}`: "invalid character", `{tags:["1"]}`: "invalid character", `{"tags":[nope]}`: "invalid character",
		`{"x":?,"tags":[]}`: "invalid character", `{"x":[1,],"tags":[]}`: "invalid character", `{"tags":["\x"]}`: "invalid character",
		`{"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `,"tags":[]}`: "nested lists and objects",
	}
	for page, want := range pages {
		got, err := readTagPage(strings.NewReader(page), 10)
		require.ErrorContains(t, err, want, page)
		assert.Nil(t, got, page)
	}
	_, err := readTagPage(strings.NewReader(`{"tags":["","",""]}`), 2)
	require.ErrorIs(t, err, ocimanifest.ErrTooMany)
}

// A page of megabytes is read to its names.
func TestLargeTagPage(t *testing.T) {
	const manifests = 20_000
	read, write := io.Pipe()
	go func() {
		_, _ = io.WriteString(write, `{"child":[],"manifest":{`)
		for n := range manifests {
			_, _ = fmt.Fprintf(write, `%s"sha256:%064x":{"imageSizeBytes":"33000000","layerId":"","mediaType":"application/vnd.oci.image.index.v1+json","tag":["v1.%d.0"]}`, map[bool]string{true: ",", false: ""}[n > 0], n, n)
		}
		_, _ = io.WriteString(write, `},"name":"k","tags":["v1.0.0"]}`)
		_ = write.Close()
	}()
	got, err := readTagPage(read, 10)
	require.NoError(t, err)
	assert.Equal(t, []string{"v1.0.0"}, got)
}

// readTagPage accepts exactly the lists that encoding/json accepts.
func FuzzTagPage(f *testing.F) {
	for _, seed := range []string{
		`{"tags":["1.0",null]}`, `{"name":"a","tags":null}`, `{"manifest":{"x":[1,{"y":"z\"}"}]},"tags":["1"]}`, `{"tags":["\ud800"]}`, `{"tags":["1"]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, page string) {
		got, err := readTagPage(strings.NewReader(page), 1000)
		var want struct {
			Tags []string `json:"tags"`
		}
		if !json.Valid([]byte(page)) || err != nil {
			return
		}
		if json.Unmarshal([]byte(page), &want) != nil || strings.Contains(strings.ToLower(strings.Replace(page, "tags", "", 1)), "tags") {
			return // another case, or twice
		}
		for n, name := range want.Tags {
			if len(name) <= maxName {
				assert.Equal(t, name, got[n])
			}
		}
	})
}

// A page returns tags, without duplicates, in order; the same page again is a circle.
func FuzzTagList(f *testing.F) {
	for _, seed := range []string{
		`{"name":"app","tags":["1.0","1.0-rev1","latest"]}`, `{"tags":null}`, `{}`, `[]`, `{"tags":["a","a","../x",""]}`, `{"tags":[1]}`,
		`{"TAGS":["a"]}`, `{"tags":["` + "\\u0000" + `"]}`, `{"tags":["a"]}{`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		list := TagList{lister: Lister{MaxTags: 1000, MaxBytes: 1 << 20}, seen: map[string]bool{}}
		if list.read(http.Header{"Link": {"</more>"}}, bytes.NewReader(page)) != nil {
			return
		}
		assert.Equal(t, len(page), list.bytes)
		assert.Len(t, list.seen, len(list.Tags))
		for _, tag := range list.Tags {
			assert.NotEqual(t, tags.ClassInvalid, tags.Classify(tag), tag)
			assert.True(t, list.seen[tag])
		}
		sorted := slices.Sorted(slices.Values(list.Tags))
		assert.Len(t, slices.Compact(sorted), len(list.Tags), "each once")
		once := slices.Clone(list.Tags)
		err := list.read(http.Header{"Link": {"</more>"}}, bytes.NewReader(page))
		assert.Equal(t, once, list.Tags)
		if len(once) > 0 && list.Invalid == 0 {
			require.ErrorContains(t, err, "repeats")
		}
	})
}
