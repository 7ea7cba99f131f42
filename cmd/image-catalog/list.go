// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// listed is one channel of `list --output json`.
type listed struct {
	Channel  string     `json:"channel"`
	Version  uint64     `json:"version"`
	Created  time.Time  `json:"created"`
	Images   int        `json:"images"`
	Expires  *time.Time `json:"expires,omitempty"`
	Frozen   *time.Time `json:"frozen,omitempty"` // until then
	SignedBy string     `json:"signedBy"`         // fingerprint; empty: no key of --trust or --key
}

func (a *app) listCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:     "list",
		Short:   "List the channels of a catalog",
		Example: "  image-catalog list --trust stage=ci.pub --trust prod=prod.pub",
		Args:    wantArgs(false),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			channels, err := p.ExistingChannels(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.checkScope(channels); err != nil {
				return err
			}
			list := []listed{}
			for _, channel := range channels {
				v, err := p.Read(cmd.Context(), channel)
				if err != nil {
					return err
				}
				list = append(list, a.listedOf(v))
			}
			return a.print(list, func(page *terminal.Page) { writeListed(page, list) })
		},
	})
}

func (a *app) listedOf(v publish.Version) listed {
	out := listed{
		Channel: v.Channel, Version: v.Version, Created: v.Created, Images: len(v.Pages), SignedBy: v.SignedBy,
	}
	if !v.Expires.IsZero() {
		out.Expires = &v.Expires
	}
	if a.now().Before(v.Frozen) {
		out.Frozen = &v.Frozen
	}
	return out
}

func writeListed(page *terminal.Page, list []listed) {
	rows := [][]string{{"CHANNEL", "VERSION", "CREATED", "IMAGES", "EXPIRES", "FROZEN", "SIGNED BY"}}
	end := func(t *time.Time, none string) string {
		if t == nil {
			return none
		}
		return page.Clock(*t)
	}
	for _, c := range list {
		rows = append(rows, []string{
			c.Channel, strconv.FormatUint(c.Version, 10), page.Clock(c.Created), strconv.Itoa(c.Images),
			end(c.Expires, "never"), end(c.Frozen, "no"), cmp.Or(c.SignedBy, "not checked"),
		})
	}
	page.Rows(rows)
}
