// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

func (a *app) initCommand() *cobra.Command {
	expires := "never"
	cmd := &cobra.Command{
		Use:   "init CHANNEL...",
		Short: "Make channels without releases",
		Example: `  image-catalog init stage --key ci.key
  image-catalog init prod --expires 30d --out to-sign`,
		Args: wantArgs(true, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.flags.out != "" && len(args) > 1 {
				return usageError{errors.New("--out takes one channel: each has a version to sign")}
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
	return a.withOut(cmd)
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
