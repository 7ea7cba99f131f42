// SPDX-License-Identifier: Apache-2.0

// Command demo shows the agent at work on a real node that exists only for it: a registry, containerd and kubelet
// in a temporary directory. `make demo` builds what it needs and runs it; it needs root, as containerd does. With the
// argument "catalog", as of `make demo-catalog`, the node follows a release catalog.
package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	s := newStage(ctx, os.Stdout)
	tell := story
	if slices.Equal(os.Args[1:], []string{"catalog"}) {
		tell = catalogStory
	}
	s.run(func() { tell(s) })
	interrupted := s.Interrupted()
	stop()
	switch {
	case interrupted:
		s.say("interrupted; everything is taken away")
		os.Exit(130) // 128 + SIGINT, as in shells
	case s.Failed():
		os.Exit(1)
	}
}
