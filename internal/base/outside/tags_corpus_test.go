// SPDX-License-Identifier: Apache-2.0

package outside_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// lines returns the lines of a file of testdata, without comments.
func lines(t *testing.T, name string) []string {
	t.Helper()
	file, err := os.Open("testdata/" + name)
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	var out []string
	for all := bufio.NewScanner(file); all.Scan(); {
		if text := all.Text(); text != "" && !strings.HasPrefix(text, "# ") {
			out = append(out, text)
		}
	}
	require.NotEmpty(t, out)
	return out
}

// Real tags, hosts, file names and errors are no secrets, alone and in the texts in which the agent shows them.
func TestRealNamesAndErrorsStay(t *testing.T) {
	t.Parallel()
	for _, text := range lines(t, "plain.txt") {
		assert.Equal(t, text, outside.Mask(text))
	}
	for _, tag := range lines(t, "tags.txt") {
		for _, text := range []string{
			tag, "r.example.com/a/b:" + tag, "docker.io/library/b:" + tag + "@sha256:" + strings.Repeat("0a", 32),
			"b:" + tag, "b " + tag + " (minor)", "r.example.com/a/b:" + tag + ": 404 Not Found",
			"https://r.example.com/v2/a/b/manifests/" + tag + ": 503 Service Unavailable",
			`failed to pull and unpack image "r.example.com:5000/a/b:` + tag + `": not found`, "rebuild: " + tag + " -> " + tag,
			"image=r.example.com/a/b:" + tag, `{"tag":"` + tag + `"}`,
		} {
			assert.Equal(t, text, outside.Mask(text))
		}
	}
}

// Tokens in the public formats of those who issue them are masked wherever they stand. The tokens are made up; ~ stands
// between their parts, so that no scanner takes this file for a leak.
func TestTokensOfKnownFormatsAreMasked(t *testing.T) {
	t.Parallel()
	for _, line := range lines(t, "tokens.txt") {
		_, written, _ := strings.Cut(line, "\t")
		token := strings.ReplaceAll(written, "~", "")
		for _, text := range []string{
			token, "answer " + token + " is not valid", `unexpected "` + token + `" in line 3`, "a/b:" + token,
			"/v2/a/b/" + token + "/x", "https://r.example.com/v2/" + token,
		} {
			got := outside.Mask(text)
			assert.NotContains(t, got, token, line)
			assert.NotContains(t, got, token[len(token)/2:], line)
		}
	}
}

// A tag that looks like a token is kept where only a parsed name can be, and in a reference. Other texts are masked.
func TestNamesOfImagesStay(t *testing.T) {
	t.Parallel()
	const tag, secret = "aB3dE5fG7hI9jK1lM3nO5pQ7", "https://u:hunter2@host/v2/"
	type image struct{ Image, Tag, From, To, Error string }
	doc := image{Image: "r.example.com:5000/a/b", Tag: tag, From: tag + "@sha256:0a1b", To: secret, Error: "odd: " + tag}
	outside.Hide(&doc)
	assert.Equal(t, image{
		Image: "r.example.com:5000/a/b", Tag: tag, From: tag + "@sha256:0a1b", To: "https://***@host/v2/", Error: "odd: ***",
	}, doc)
	for _, text := range []string{
		"r.example.com/a/b:" + tag + ": 404 Not Found", `pull "docker.io/library/b:1.2-` + tag + `": not found`,
	} {
		assert.Equal(t, text, outside.Mask(text))
	}
	assert.NotContains(t, outside.Mask("https://r.example.com/a:"+tag), tag, "a URL has no tag")
}
