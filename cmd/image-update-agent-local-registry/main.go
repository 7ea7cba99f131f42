// SPDX-License-Identifier: Apache-2.0

// Command image-update-agent-local-registry is the node's local registry: it serves the clients of the socket on its
// standard input, from the table in the file that is its only argument. systemd starts it when a client connects.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubic-project/image-update-agent/internal/registry/registryhost/answer"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "image-update-agent-local-registry: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("want one argument, the file with the tags and digests to serve")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	return answer.NewServer(args[0], os.Getenv("RUNTIME_DIRECTORY"), log).ServeFile(ctx, os.Stdin)
}
