// SPDX-License-Identifier: Apache-2.0

// Command requests does only the requests of the agent's poll: the agent's registry client resolves each tag. The
// benchmarks derive the share of requests in a cycle from it.
//
//	requests ROUNDS CERTSD REFERENCE...
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "requests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("want ROUNDS CERTSD REFERENCE")
	}
	rounds, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	r := registry.New(registry.Options{Options: transport.Options{Version: "devel"}, CertsDirs: args[1:2]})
	defer r.Close()
	for range rounds {
		for _, text := range args[2:] {
			ref, err := release.ParseReference(text)
			if err != nil {
				return err
			}
			if _, err := r.Resolve(ctx, ref); err != nil {
				return err
			}
		}
	}
	return nil
}
