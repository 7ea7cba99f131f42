// SPDX-License-Identifier: Apache-2.0

// Command keeper maintains a test node (package keeper); node.Start builds and runs it. `keeper sweep` removes the
// remains of killed keepers.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/kubic-project/image-update-agent/e2e/keeper"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "keep":
		return keeper.Keep(args[1])
	case len(args) == 1 && args[0] == "init":
		return keeper.Init(os.Stdin, os.Stdout)
	case len(args) == 1 && args[0] == "sweep":
		swept, err := keeper.Sweep()
		for _, dir := range swept {
			fmt.Fprintln(os.Stdout, dir)
		}
		return err
	}
	return errors.New("usage: keeper sweep (keep DIR and init are for package node)")
}
