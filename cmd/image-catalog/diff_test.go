// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Two versions of one channel are told apart, as two channels are.
func TestDiffNamesTheVersionThatWithdrew(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.push("velum", "4.0.0-rev1-build1.1")
	s.does("init", "stage", "--unsigned")
	s.does("add", "stage", "HOST/velum:4.0.0-rev1-build1.1")
	s.does("withdraw", "stage", "velum:4.0.0-rev1-build1.1", "--reason", "bsc#1")
	assert.Contains(t, s.does("diff", "stage@2", "stage@3"), "withdrawn from stage@3: bsc#1\n")
	assert.Contains(t, s.does("diff", "stage", "stage@2"), "withdrawn from stage@3: bsc#1\n")
	assert.Contains(t, s.does("diff", "stage@3", "stage@2", "--output", "json"), `"withdrawnFrom": "stage@3"`)
}
