// SPDX-License-Identifier: Apache-2.0

// Command image-catalog publishes release catalogs: stage follows every build, prod what was
// promoted. See docs/catalog.md; docs/catalog-format.md specifies what it publishes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}
