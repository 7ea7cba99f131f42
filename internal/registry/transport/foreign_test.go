// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLimitOfForeignTokens(t *testing.T) {
	t.Parallel()
	kept := map[int]int{
		maxForeignTokens - 1: maxForeignTokens - 1, maxForeignTokens: maxForeignTokens, maxForeignTokens + 1: 1,
	}
	for hosts, want := range kept {
		f := newForeignTokens(nil)
		last := foreignToken{}
		for n := range hosts {
			last = foreignToken{fmt.Sprintf("https://%d.example.com", n), "repository:app:pull"}
			f.put(last, "Bearer x")
		}
		assert.Len(t, f.tokens, want, "%d hosts", hosts)
		assert.Equal(t, "Bearer x", f.get(last))
	}
}
