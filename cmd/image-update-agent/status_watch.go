// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// watchAgain is the time after which a watch connects again: a restart of the daemon takes about a second.
const watchAgain = time.Second

// wipe moves the cursor to the top left and empties the screen (ECMA-48, CUP and ED).
const wipe = "\x1b[H\x1b[2J"

// watchStatus shows the status, and shows it again at each change that the daemon reports, until ctx ends.
func (a *app) watchStatus(ctx context.Context) error {
	s, err := a.daemonSettings()
	if err != nil {
		return err
	}
	client, shown, alone := api.NewClient(s.socket("status.sock")), 0, false
	show := func(s status.Status) error {
		shown++
		alone = false
		return a.showAgain(s, shown > 1)
	}
	for {
		err := client.Watch(ctx, show)
		switch isAlone := errors.Is(err, api.ErrNoDaemon); {
		case ctx.Err() != nil:
			return cli.Exit(exitFailed) // with the code of the signal
		case !isAlone && !errors.Is(err, api.ErrWatchEnded), shown == 0:
			return err
		case isAlone && !alone:
			alone = true
			fmt.Fprintln(a.err, "image-update-agent: no daemon answers; waiting for it")
		}
		if wait.For(ctx, watchAgain) != nil {
			return cli.Exit(exitFailed)
		}
	}
}

// showAgain writes a status in the place of the last one: on a terminal over it, elsewhere below it.
func (a *app) showAgain(s status.Status, again bool) error {
	switch {
	case a.output == "json":
		return a.encoder().Encode(s)
	case terminal.Is(a.files.out):
		outside.NewWriter(a.files.out).Control(wipe)
	case again:
		fmt.Fprintln(a.out)
	}
	return a.printStatus(s)
}
