// SPDX-License-Identifier: Apache-2.0

// Command image-update-agent keeps the container images of a node's static pods
// current without a reboot. See docs/dev/design.md for the words it uses.
package main

import (
	"context"
	"os"
)

func main() {
	ctx, stop := withSignals(context.Background())
	code := execute(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

// version is set by the build (-ldflags "-X main.version=...").
var version = "devel"
