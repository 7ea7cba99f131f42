// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// change carries a request out and prints what became of it.
func (a *app) change(ctx context.Context, p *publish.Publisher, r publish.Request) error {
	r.DryRun, r.Out = a.flags.dryRun, a.flags.out
	got, err := p.Change(ctx, r)
	if err != nil {
		return err
	}
	return a.printResult(got)
}

// printResult prints a result. Where nothing was to do, the program ends with that code.
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
		case o.Changed && o.Withdrawn:
			mark = "- "
		case o.Changed:
			mark = "+ "
		}
		rows = append(rows, []string{mark + o.Image + ":" + o.Tag, o.Note})
	}
	page.Rows(rows)
	switch {
	case !r.Changed:
		page.Line(fmt.Sprintf("Nothing to do: %s stays at version %d.", r.Channel, r.Version))
	case a.flags.dryRun:
		page.Line(fmt.Sprintf("Would publish %s, version %d.", r.Channel, r.Version))
	case a.flags.out != "":
		page.Line(fmt.Sprintf("Wrote %s, version %d, to %s: sign %s, then image-catalog publish.",
			r.Channel, r.Version, a.flags.out, publish.PayloadFile))
	default:
		page.Line(fmt.Sprintf("Published %s, version %d, %s.", r.Channel, r.Version, r.Digest))
		if a.flags.key == "" && len(a.flags.trust) == 0 {
			page.Line("It is not signed: nodes that want signatures refuse it.")
		}
	}
	if r.Expires != nil {
		page.Line("It expires at " + page.Next(*r.Expires) + ".")
	}
	for _, w := range r.Waiting {
		page.Line(fmt.Sprintf("%s is not folded: %s", w.Op, w.Why))
	}
}

// expiry reads --expires: a duration, or "never".
func (a *app) expiry(text string) (time.Time, error) {
	if text == "never" {
		return time.Time{}, nil
	}
	d, err := parseSpan("expires", text)
	if err != nil {
		return time.Time{}, err
	}
	return a.now().UTC().Add(d).Truncate(time.Second), nil
}
