// SPDX-License-Identifier: Apache-2.0

// Package lazyregexp compiles regular expressions when they are first used. Those of all packages together would cost
// every command 4 ms of CPU and 3 MB at its start.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the compiled expression. The function panics if the expression is invalid.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
