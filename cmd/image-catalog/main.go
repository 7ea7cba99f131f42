// SPDX-License-Identifier: Apache-2.0

// Command image-catalog publishes release catalogs: stage gets every build, prod what you promote. See docs/publish.md
// and docs/catalog.md; docs/dev/catalog-format.md specifies the format.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	_ "golang.org/x/crypto/x509roots/fallback" // a container image has no certificate authorities
)

// memoryLimit is how much memory Go's runtime tries to stay below, in bytes. Without it a batch of 100,000 builds takes
// 315 MB, with it 182 MB and the same time.
const memoryLimit = 160 << 20

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

// version is set by the build (-ldflags "-X main.version=...").
var version = "devel"
