// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// An old version does not have the changes that came later: they do not wait.
func TestInspectOfAnOldVersion(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.push("velum", "4.0.0-rev1-build1.1", "4.0.0-rev1-build1.2")
	s.does("init", "stage", "--unsigned")
	s.does("add", "stage", "HOST/velum:4.0.0-rev1-build1.1")
	s.does("add", "stage", "HOST/velum:4.0.0-rev1-build1.2")
	out := s.does("inspect", "stage@2")
	assert.Contains(t, out, "4.0.0-rev1-build1.1")
	assert.NotContains(t, out, "Not published yet")
	assert.Contains(t, s.does("inspect", "stage@2", "--output", "json"), `"waiting": []`)
	assert.Contains(t, s.does("inspect", "stage", "--output", "json"), `"waiting": []`)
}

// A release that the channel does not list is an error, and not an empty page.
func TestInspectOfAReleaseThatIsNotListed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.push("velum", "4.0.0-rev1-build1.1")
	s.does("init", "stage", "--unsigned")
	s.does("add", "stage", "HOST/velum:4.0.0-rev1-build1.1")
	for _, word := range []string{"velum:4.0.0-rev1-build1.7", "HOST/velum:4.0.0-rev1-build1.7"} {
		_, errs, code := s.run("inspect", "stage", word, "--output", "json")
		assert.Equal(t, exitFailed, code, word)
		assert.Contains(t, errs, "HOST/velum:4.0.0-rev1-build1.7: channel stage does not list it, did you mean 4.0.0-rev1-build1.1?")
	}
	out := s.does("inspect", "stage", "velum:4.0.0-rev1-build1.1")
	assert.Contains(t, out, "4.0.0-rev1-build1.1")
}
