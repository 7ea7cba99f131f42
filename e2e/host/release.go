// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"sync"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// released makes the release once for all tests of this process.
var released = sync.OnceValues(release)

// Released returns the result of `make dist` for the checkout with its uncommitted changes, for this machine's
// architecture only.
func Released(tb node.TB) Dist {
	tb.Helper()
	dist, err := released()
	if err != nil {
		tb.Fatalf("host: release: %v", err)
	}
	return dist
}

func release() (Dist, error) {
	dir, err := os.MkdirTemp("", packageName+"-release")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	script := `cd "$(dirname "$(go env GOMOD)")/.."; IUA_TREE=1 IUA_ARCHES="$(go env GOARCH)" tools/package dist "$1"`
	if err := shell(".", script, dir); err != nil {
		return nil, err
	}
	return filesOf(dir)
}

// Feed runs a program on a booted host with these bytes as its standard input.
func (h *Host) Feed(input []byte, argv ...string) {
	h.tb.Helper()
	if r := h.Run(Command{Stdin: string(input), Argv: argv}); r.Code != 0 {
		h.tb.Fatalf("host: %q: %s", argv, r.Stderr)
	}
}
