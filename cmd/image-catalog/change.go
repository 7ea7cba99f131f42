// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// change changes a channel and prints the result.
func (a *app) change(
	ctx context.Context, p *publish.Publisher, channel string, do publish.Verb, how publish.How,
) error {
	how.DryRun, how.Out = a.flags.dryRun, a.flags.out
	got, err := p.Change(ctx, channel, do, how)
	if err != nil {
		return err
	}
	return a.printResult(got)
}

// printResult prints a result. If there was nothing to do, it returns exitNothing.
func (a *app) printResult(r publish.Result) error {
	if err := a.print(r, func(page *terminal.Page) { a.writeResult(page, r) }); err != nil {
		return err
	}
	if !r.Changed {
		return cli.Exit(exitNothing)
	}
	return nil
}

func (a *app) writeResult(page *terminal.Page, r publish.Result) {
	var rows [][]string
	for _, o := range r.Outcomes {
		mark := "  "
		switch {
		case o.Changed && o.Steered:
			mark = "~ "
		case o.Changed && o.Withdrawn:
			mark = "- "
		case o.Changed:
			mark = "+ "
		}
		rows = append(rows, []string{mark + o.Image + ":" + o.Tag, o.Note})
	}
	page.Rows(rows)
	for _, o := range r.Others {
		page.Item("* ", otherSentence(page, o))
	}
	switch {
	case !r.Changed:
		page.Line(fmt.Sprintf("Nothing to do: %s stays at version %d.", r.Channel, r.Version))
	case a.flags.dryRun:
		page.Line(fmt.Sprintf("Would publish %s, version %d.", r.Channel, r.Version))
	case a.flags.out != "":
		page.Line(fmt.Sprintf("Wrote %s, version %d, to %s: sign %s, then run image-catalog publish.",
			r.Channel, r.Version, a.flags.out, publish.PayloadFile))
	default:
		page.Line(fmt.Sprintf("Published %s, version %d, %s.", r.Channel, r.Version, r.Digest))
		if len(a.flags.keys) == 0 && len(a.flags.trust) == 0 {
			page.Line("It is not signed: nodes refuse it unless they set catalog.signatures: off.")
		}
	}
	if r.Expires != nil {
		page.Line("It expires at " + page.Next(*r.Expires) + ".")
	}
	if r.Frozen != nil && a.now().Before(*r.Frozen) {
		page.Line("It is frozen until " + page.Next(*r.Frozen) + ".")
	}
	for _, w := range r.Waiting {
		page.Line(fmt.Sprintf("Not published yet: %s: %s", w.Op, w.Why))
	}
}

// otherSentence names a change of somebody else that is in the version: who has asked for it, when, and for what.
func otherSentence(page *terminal.Page, o publish.Other) string {
	what := map[catalog.Action]string{
		catalog.ActionAdd: "added", catalog.ActionPromote: "promoted or steered", catalog.ActionWithdraw: "withdrew",
		catalog.ActionRefresh: "set when the channel expires", catalog.ActionFreeze: "froze or unfroze the channel",
		catalog.ActionNote: "noted something of",
	}[o.Do]
	text := fmt.Sprintf("also in this version: %s %s at %s", cmp.Or(o.By, "somebody"), what, page.Clock(o.At))
	if len(o.Releases) > 0 {
		text = fmt.Sprintf("also in this version: %s %s %s at %s",
			cmp.Or(o.By, "somebody"), what, strings.Join(o.Releases, ", "), page.Clock(o.At))
	}
	if len(o.Keys) > 0 {
		text += ", key " + strings.Join(o.Keys, ", ")
	}
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	return text + " (" + o.Op + ")"
}
