// SPDX-License-Identifier: Apache-2.0

package lazyregexp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

func TestNew(t *testing.T) {
	t.Parallel()
	digits := lazyregexp.New("^[0-9]+$")
	assert.True(t, digits().MatchString("12"))
	assert.False(t, digits().MatchString("1a"))
	compiled := digits()
	assert.Same(t, compiled, digits(), "it is compiled once")
	invalid := lazyregexp.New("(")
	assert.Panics(t, func() { invalid() }, "not before it is used")
}
