// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A registry that redirects has tokens in its addresses, and Go's errors quote them.
func TestErrorsHaveNoSecret(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := newApp(streams{in: nil, out: &out, err: &out})
	for _, cause := range []string{
		`Get "https://cdn.example.com/blob?X-Amz-Signature=0f3a9hunter2&n=3": EOF`,
		`Put "https://u:hunter2@registry.example.com/v2/": 401 Unauthorized`,
		"unexpected status: 307 Location: https://cdn.example.com/?token=hunter2",
	} {
		a.explain(a.command(), fmt.Errorf("registry.example.com/catalog: %s", cause))
	}
	assert.Contains(t, out.String(), "https://cdn.example.com/blob")
	assert.NotContains(t, out.String(), "hunter2")
}
