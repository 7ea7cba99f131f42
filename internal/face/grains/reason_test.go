// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const failedReason = "velum-public.yaml: velum is not ready: GET http://127.0.0.1:80/: 503 Service Unavailable; " +
	"rolled back to sha256:e3b0c44298fc1c14, which runs well"

var reasons = map[string]struct{ text, want string }{
	"none":                 {"", ""},
	"as it is":             {failedReason, failedReason},
	"only space":           {" \n\t", ""},
	"several lines":        {"  a:\r\n\tb\n\nc\u2028d\u0085e  ", "a: b c d e"},
	"control characters":   {"a\x00b\x1b[31mc\x7f", "ab[31mc"},
	"quotes and backslash": {`u'x' "y" \z`, "u`x` `y` `z"},
	"no comment":           {"a |# b #1", "a | b 1"},
	"letters":              {"größe 3 €", "größe 3 €"},
	"beyond the plane":     {"a\U0001f600b", "ab"},
	"no utf-8":             {"a\xff\xfeb\ufffd", "ab"},
	"invisible":            {"a\ufeff\u200b\u00adb", "ab"},
	"long":                 {strings.Repeat("a", 201), strings.Repeat("a", 200)},
	"long, two bytes":      {"a" + strings.Repeat("é", 100), "a" + strings.Repeat("é", 99)},
	"long, three bytes":    {"a" + strings.Repeat("€", 100), "a" + strings.Repeat("€", 66)},
	"long, ends in space":  {strings.Repeat("a", 199) + " b", strings.Repeat("a", 199)},
}

func TestReasonIsOneBoundedLine(t *testing.T) {
	t.Parallel()
	for name, tc := range reasons {
		assert.Equal(t, tc.want, reason(tc.text), name)
	}
}

func TestPropertyReason(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		got := reason(rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.RuneFrom(reasonRunes), 0, 300, -1)).Draw(t, "text"))
		require.LessOrEqual(t, len(got), maxReason)
		require.True(t, utf8.ValidString(got))
		require.NotContains(t, got, "\n")
		require.Equal(t, got, reason(got))
	})
}

// The key is added and removed with the reason; a file of an older agent has none.
func TestAnnounceSaysTheReason(t *testing.T) {
	t.Parallel()
	salt := startSalt(t)
	for _, before := range []string{"", nothingText, "roles: x\n" + nothingText + "# end\n", "image_update_reason: old\nroles: x\n"} {
		n := newNode(t, before)
		failed := nothing
		failed.State, failed.Reason = "failed", "a\n"+failedReason
		_, err := n.store.Announce(t.Context(), failed)
		require.NoError(t, err)
		after := n.content(t)
		requireReadsAs(t, salt, before, after, failed)
		assert.Contains(t, "\n"+after, "\nimage_update_reason: \"a "+failedReason+"\"\n", "%q", before)
		state := n.state(t)
		changed, err := n.store.Announce(t.Context(), failed)
		require.NoError(t, err)
		assert.False(t, changed)
		assert.Equal(t, state, n.state(t))

		_, err = n.store.Announce(t.Context(), nothing)
		require.NoError(t, err)
		assert.NotContains(t, n.content(t), "reason")
		requireReadsAs(t, salt, before, n.content(t), nothing)
		changed, err = n.store.Announce(t.Context(), nothing)
		require.NoError(t, err)
		assert.False(t, changed)
	}
}

func TestAnnounceSaysTheReasonBehindTheState(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	_, err := n.store.Announce(t.Context(), Grain{State: "held", Reason: "disk"})
	require.NoError(t, err)
	assert.Equal(t, strings.Replace(nothingText, "\"current\"\n", "\"held\"\nimage_update_reason: \"disk\"\n", 1), n.content(t))
}

// Salt wraps long lines.
func TestAnnounceAcceptsAnotherSpellingOfTheReason(t *testing.T) {
	t.Parallel()
	salt := startSalt(t)
	for _, text := range []string{failedReason, "größe: €", "yes", "1.6", "- a: b"} {
		failed := nothing
		failed.Reason = text
		n := newNode(t, "roles:\n- admin\n")
		_, err := n.store.Announce(t.Context(), failed)
		require.NoError(t, err)
		require.Empty(t, salt.setval(t, n.path, "a", true))
		require.NotContains(t, n.content(t), `"`+text+`"`)
		changed, err := n.store.Announce(t.Context(), failed)
		require.NoError(t, err)
		assert.False(t, changed, text)
	}
}
