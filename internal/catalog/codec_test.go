// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// A codec that knows a list of members reads each page as one that knows none: what is written in another way than
// Encode does, too, and what stands in the place of a list.
func TestACodecReadsPagesAsAFreshOne(t *testing.T) {
	t.Parallel()
	const list = `["r.example/a:1","r.example/b:1"]`
	members := []string{"r.example/a:1", "r.example/b:1"}
	text := func(fields string) []byte {
		return packed(t, fmt.Sprintf(`{"image":%q,"releases":[{"tag":"1","digest":%q,%s}]}`, velum, digest.FromString("1"), fields))
	}
	read := func(t *testing.T, c *catalog.Codec, fields string) (catalog.Release, error) {
		t.Helper()
		data := text(fields)
		p, err := c.Decode(data, refTo(velum, data))
		if err != nil {
			return catalog.Release{}, err
		}
		return p.Releases[0], nil
	}
	second := fmt.Sprintf(`},{"tag":"2","digest":%q,"set":"s",`, digest.FromString("2"))
	for fields, want := range map[string][]string{
		`"set":"s","members":` + list:                                     members,
		`"set":"s","members" : [ "r.example/a:1","r.example/b:1"]`:        members,
		`"set":"members","members":` + list:                               members,
		`"set":"a\"s","members":` + list:                                  members,
		`"set":"s","\u006dembers":` + list:                                members,
		`"set":"s","x":{"members":["0"]},"members":` + list:               members,
		`"set":"s","members":["r.example/a:1"]`:                           {"r.example/a:1"},
		`"set":"s","members":["0"]`:                                       nil,
		`"set":"s","\u006dembers":["0"]`:                                  nil,
		`"set":"s","members":` + list + `,"\u006dembers":["0"]`:           nil,
		`"set":"s","members":` + list + `,"members":` + list:              nil,
		`"set":"s","Members":` + list:                                     nil,
		`"set":"s","members":["r.example/a:1]"]`:                          nil,
		`"set":"s","members":["r.example/b:1","r.example/a:1"]`:           nil,
		`"set":"s","members":["r.example/a:1",{"x":["r.example/b:1"]}]`:   nil,
		`"set":"s","members":["r.example/a:1"`:                            nil,
		`"members":` + list:                                               nil,
		`"set":"s","members":` + list + second + `"members":` + list:      members,
		`"set":"s","members":` + list + second + `"\u006dembers":` + list: members,
		`"set":"s","members":` + list + second + `"\u006dembers":["0"]`:   nil,
		`"set":"s","members":` + list + second + `"members" :["0"]`:       nil,
		`"set":"s","members":` + list + second + `"members":["0"]`:        nil,
	} {
		t.Run(fields, func(t *testing.T) {
			t.Parallel()
			c := &catalog.Codec{}
			_, err := read(t, c, `"set":"s","members":`+list)
			require.NoError(t, err)
			got, err := read(t, c, fields)
			fresh, errFresh := read(t, &catalog.Codec{}, fields)
			assert.Equal(t, fresh, got)
			assert.Equal(t, errFresh, err)
			assert.Equal(t, want == nil, err != nil, "%v", err)
			assert.Equal(t, want, got.Members)
		})
	}
}

// All releases of a set share one list, in all pages; what is written is checked all the same.
func TestACodecKeepsAListOnce(t *testing.T) {
	t.Parallel()
	c := &catalog.Codec{}
	var lists [][]string
	for _, image := range []string{"r.example/a", "r.example/b"} {
		r := catalog.Release{
			Tag: "1", Digest: digest.FromString(image), Set: "s", Members: []string{"r.example/a:1", "r.example/b:1"},
		}
		data, err := c.Encode(catalog.Page{Image: image, Releases: []catalog.Release{r}})
		require.NoError(t, err)
		plain, err := catalog.Page{Image: image, Releases: []catalog.Release{r}}.Encode()
		require.NoError(t, err)
		require.Equal(t, plain, data)
		p, err := c.Decode(data, refTo(image, data))
		require.NoError(t, err)
		lists = append(lists, p.Releases[0].Members)

		p.Releases[0].Set = ""
		_, err = c.Encode(p)
		require.Error(t, err, "members without a set")
	}
	assert.Equal(t, lists[0], lists[1])
	assert.Same(t, &lists[0][0], &lists[1][0])
	bad := catalog.Release{Tag: "1", Digest: digest.FromString("1"), Set: "s", Members: []string{"r.example/b:1", "r.example/a:1"}}
	for range 2 {
		_, err := c.Encode(catalog.Page{Image: "r.example/a", Releases: []catalog.Release{bad}})
		require.Error(t, err)
	}
}
