// SPDX-License-Identifier: Apache-2.0

package reboot

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Any content of systemd's file becomes one line for people.
func FuzzScheduled(f *testing.F) {
	f.Add("USEC=1763695800000000\nWARN_WALL=1\nMODE=reboot\nWALL_MESSAGE=soon\n")
	f.Add("MODE=\x1b[1m\nUSEC=-9223372036854775808")
	f.Fuzz(func(t *testing.T, text string) {
		line, at := describe(text)
		_, err := at.MarshalJSON()
		require.NoError(t, err)
		assert.Contains(t, line, " is scheduled at ")
		assert.Less(t, len(line), 400, "a bounded text of theirs, and ours")
		for _, r := range line {
			assert.True(t, unicode.IsPrint(r), "%q", line)
		}
	})
}

// An answer is a status, or an error for people.
func FuzzVarlink(f *testing.F) {
	f.Add([]byte(`{"parameters":{"RebootStatus":2,"RequestedMethod":2,"RebootTime":"now","RebootDisabled":false}}`))
	f.Add([]byte(`{"error":"org.varlink.service.MethodNotFound","parameters":{}}`))
	f.Add([]byte(`{"parameters":{"RebootStatus":` + strings.Repeat("1", 1000) + `}}`))
	f.Add([]byte(`{"error":"` + strings.Repeat("x", 1000) + `"}`))
	f.Add([]byte(`{"error":` + strings.Repeat("1", 1000) + `}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		var s rebootStatus
		if err := decode(message, &s); err != nil {
			assert.NotEmpty(t, err.Error())
			assert.Equal(t, outside.Line(err.Error(), outside.MaxError), err.Error())
		}
	})
}
