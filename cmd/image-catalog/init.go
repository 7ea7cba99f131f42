// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/cli"
)

func (a *app) initCommand() *cobra.Command {
	expires := "never"
	cmd := &cobra.Command{
		Use:   "init CHANNEL...",
		Short: "Make channels without releases",
		Long: `init makes channels. Nodes that want signatures refuse what no key has signed: --key signs
a channel here, --out has it signed elsewhere, and --unsigned leaves it unsigned.`,
		Example: `  image-catalog init stage --key ci.key
  image-catalog init prod --expires 30d --out to-sign`,
		Args: wantArgs(true, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.flags.out != "" && len(args) > 1 {
				return cli.Usage(errors.New("--out takes one channel: each has a version to sign"))
			}
			if err := a.checkSigned(); err != nil {
				return err
			}
			end, err := a.expiry(expires)
			if err != nil {
				return err
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			for _, channel := range args {
				err := a.change(cmd.Context(), p, publish.Request{
					Channel: channel, Do: catalog.ActionRefresh, Expires: end, New: true,
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&expires, "expires", expires, "when nodes stop to trust it without a refresh: 30d, 720h, never")
	cmd.Flags().BoolVar(&a.flags.unsigned, "unsigned", false, "make channels without a signature")
	return a.withOut(cmd)
}

// checkSigned refuses to make a channel unless a flag says how it is signed.
func (a *app) checkSigned() error {
	isSigned := a.flags.key != "" || a.flags.out != ""
	switch {
	case !isSigned && !a.flags.unsigned:
		return cli.Usage(errors.New("--key FILE is missing: nodes that want signatures refuse what is not signed; " +
			"--out has it signed elsewhere, --unsigned leaves it unsigned"))
	case isSigned && a.flags.unsigned:
		return cli.Usage(errors.New("--unsigned: there is --key or --out"))
	}
	return nil
}

func (a *app) refreshCommand() *cobra.Command {
	var expires string
	cmd := &cobra.Command{
		Use:   "refresh CHANNEL",
		Short: "Set when a channel expires, and publish what waits",
		Long: `refresh sets when a channel expires. Without --expires it leaves that as it is, and only
publishes what waits: the ops of a publisher that was stopped.

Exit status: 0 published, 3 there was nothing to publish.`,
		Example: `  image-catalog refresh stage --expires 14d --key ci.key
  image-catalog refresh prod --expires 90d --out to-sign
  image-catalog refresh stage --key ci.key`,
		Args: wantArgs(false, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := publish.Request{Channel: args[0]}
			if expires != "" {
				end, err := a.expiry(expires)
				if err != nil {
					return err
				}
				r.Do, r.Expires = catalog.ActionRefresh, end
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			return a.change(cmd.Context(), p, r)
		},
	}
	cmd.Flags().StringVar(&expires, "expires", "", "when nodes stop to trust it without another refresh: 30d, 720h, never")
	return a.withOut(cmd)
}
