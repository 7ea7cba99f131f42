// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A wrong argument is the first and only thing that is said, and the right ones beside it are not carried out.
func TestRegistriesAreCheckedFirst(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"enable", "disable"} {
		var out, said bytes.Buffer
		code := execute(t.Context(), []string{"local-registry", verb, "registry.suse.com", "http://x", "--root", t.TempDir()},
			streams{in: strings.NewReader(""), out: &out, err: &said})
		assert.Equal(t, exitUsage, code, verb)
		assert.Regexp(t, `^image-update-agent: error: "http://x": no registry: want HOST or HOST:PORT\n.* hint: .*\n$`, said.String(), verb)
		assert.Empty(t, out.String(), verb)
	}
}
