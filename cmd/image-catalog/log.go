// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

func (a *app) logCommand() *cobra.Command {
	most := 20
	cmd := &cobra.Command{
		Use:   "log CHANNEL [IMAGE|DIGEST...]",
		Short: "Show who changed a channel, when, how and why",
		Long: `log shows the changes of a channel, the newest first: who made it, when, in which CI job,
with which key, and which releases it added, promoted or withdrew. With arguments it shows
only changes of these releases: an IMAGE is REPOSITORY, REPOSITORY:TAG or the end of one,
a DIGEST is sha256:HEX or the beginning of it.

The log is a part of each version and signed with it. prune does not delete it.`,
		Example: `  image-catalog log prod
  image-catalog log prod velum --limit 5
  image-catalog log prod sha256:9f2c41aa03b7`,
		Args: wantArgs(true, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if most < 1 {
				return cli.Usage(errors.New("--limit: want at least 1"))
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			v, err := read(cmd.Context(), p, args[0])
			if err != nil {
				return err
			}
			log, err := p.Log(cmd.Context(), v)
			if err != nil {
				return err
			}
			shown := matching(log, args[1:], most)
			return a.print(shown, func(page *terminal.Page) { writeLog(page, shown, steersOf(log)) })
		},
	}
	cmd.Flags().IntVar(&most, "limit", most, "show at most this many changes")
	return a.withOutput(cmd)
}

// matching returns the newest entries of a log, the newest first: with words, those of the releases that they name.
func matching(log []catalog.Entry, words []string, most int) []catalog.Entry {
	out := []catalog.Entry{}
	for _, e := range slices.Backward(log) {
		if len(words) > 0 {
			e.Changes = slices.DeleteFunc(slices.Clone(e.Changes), func(c catalog.Change) bool {
				return !slices.ContainsFunc(words, func(word string) bool { return names(word, c) })
			})
			if len(e.Changes) == 0 {
				continue
			}
		}
		if out = append(out, e); len(out) == most {
			break
		}
	}
	return out
}

// names reports whether a word names a release: its digest, its repository, or that with the tag. A beginning of the
// digest and an end of the repository are enough.
func names(word string, c catalog.Change) bool {
	if strings.HasPrefix(word, "sha256:") {
		return strings.HasPrefix(c.Release.Digest.String(), word)
	}
	return slices.ContainsFunc([]string{c.Image, c.Member()}, func(name string) bool {
		return name == word || strings.HasSuffix(name, "/"+word)
	})
}

// writeLog writes entries as git log does.
func writeLog(page *terminal.Page, log []catalog.Entry, steers map[string]string) {
	if len(log) == 0 {
		page.Line("No change in the log.")
	}
	for n, e := range log {
		if n > 0 {
			page.Line("")
		}
		by := cmp.Or(e.By, "somebody")
		page.Line(fmt.Sprintf("version %d, %s: %s %s", e.Version, page.Past(e.At), by, didWhat(page, e, steers)))
		if e.Reason != "" {
			page.Item("  reason: ", e.Reason)
		}
		if e.Run != "" {
			page.Item("  run: ", e.Run)
		}
		if e.Key != "" {
			page.Item("  key: ", e.Key)
		}
		var rows [][]string
		for _, c := range e.Changes {
			rows = append(rows, []string{"  " + c.Member(), short(c.Release.Digest), marks(page, c.Release)})
		}
		page.Rows(rows)
	}
}

// didWhat says what an op did.
func didWhat(page *terminal.Page, e catalog.Entry, steers map[string]string) string {
	switch e.Do {
	case catalog.ActionAdd:
		return "added " + terminal.Plural(len(e.Changes), "release")
	case catalog.ActionPromote:
		return cmp.Or(steers[e.Tag], "promoted") + " " + terminal.Plural(len(e.Changes), "release")
	case catalog.ActionWithdraw:
		return "withdrew " + terminal.Plural(len(e.Changes), "release")
	case catalog.ActionNote:
		return "noted something of " + terminal.Plural(len(e.Changes), "release")
	case catalog.ActionFreeze:
		if e.Until.IsZero() {
			return "unfroze the channel"
		}
		return "froze the channel until " + page.Clock(e.Until)
	}
	end := "never expires"
	if !e.Expires.IsZero() {
		end = "expires at " + page.Clock(e.Expires)
	}
	if e.Version == 1 {
		return "made the channel, which " + end
	}
	return "changed when the channel expires: it " + end
}
