// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/node/podfiles"
)

// putBackCommand is for the unit, and hidden: a daemon does the same when it
// starts.
func (a *app) putBackCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "put-back",
		Short: "Restore pod manifests that were set aside",
		Long: `put-back restores the pod manifests that a daemon had set aside when it was killed during
an apply. Each file .NAME.image-update-agent-aside gets its name back, so that kubelet
starts the pod again. If a file with that name exists by now, it stays, and the one that
was set aside is removed. put-back prints the restored names, one a line; it is no error
if there are none.

The systemd unit runs it whenever the daemon ends. It needs no daemon and takes no lock,
so it never waits. Two at once, or one beside a daemon during an apply, are harmless: each
file is restored by one rename that replaces nothing.

If the configuration cannot be read, put-back uses the directory that kubelet's
configuration names, or /etc/kubernetes/manifests, and exits with 2.`,
		Example: `  image-update-agent put-back`,
		Hidden:  true,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, wrong := a.podManifests()
			if dir == "" {
				return wrong
			}
			a.acts.Store(true)
			names, err := podfiles.New(podfiles.Dirs{PodManifests: dir}).PutBack(cmd.Context())
			return errors.Join(a.printPutBack(names), err, wrong)
		},
	})
}

// putBackView is `put-back --output json`.
type putBackView struct {
	PutBack []string `json:"putBack"` // names of pod manifests
}

func (a *app) printPutBack(names []string) error {
	return a.show(putBackView{append([]string{}, names...)}, func() error {
		for _, name := range names {
			fmt.Fprintln(a.out, name)
		}
		return nil
	})
}

// podManifests is kubelet's directory as configured. With a wrong configuration it is
// the one without any: a misspelt key must not keep a pod away.
func (a *app) podManifests() (dir string, wrong error) {
	c, wrong := a.load()
	if wrong == nil {
		return c.Settings.PodManifests, nil
	}
	// Also the file of the package may be wrong.
	c, err := config.Load(config.Sources{Root: a.below(), Defaults: true, Command: a.starts})
	if err != nil {
		return "", errors.Join(wrong, err)
	}
	return c.Settings.PodManifests, wrong
}
