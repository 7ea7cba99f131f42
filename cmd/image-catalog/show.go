// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// listed is one channel of `list --output json`.
type listed struct {
	Channel  string    `json:"channel"`
	Version  uint64    `json:"version"`
	Created  time.Time `json:"created"`
	Images   int       `json:"images"`
	Expires  time.Time `json:"expires,omitzero"`
	Frozen   time.Time `json:"frozen,omitzero"` // until then
	SignedBy string    `json:"signedBy"`        // fingerprint; empty: no key of --trust or --key
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
		Expires: v.Expires,
	}
	if a.now().Before(v.Frozen) {
		out.Frozen = v.Frozen
	}
	return out
}

func writeListed(page *terminal.Page, list []listed) {
	rows := [][]string{{"CHANNEL", "VERSION", "CREATED", "IMAGES", "EXPIRES", "FROZEN", "SIGNED BY"}}
	end := func(t time.Time, none string) string {
		if t.IsZero() {
			return none
		}
		return page.Clock(t)
	}
	for _, c := range list {
		rows = append(rows, []string{
			c.Channel, strconv.FormatUint(c.Version, 10), page.Clock(c.Created), strconv.Itoa(c.Images),
			end(c.Expires, "never"), end(c.Frozen, "no"), cmp.Or(c.SignedBy, "not checked"),
		})
	}
	page.Rows(rows)
}

func (a *app) diffCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "diff FROM TO",
		Short: "Compare two channels, or two versions of one",
		Long: `diff shows each image whose newest release differs, with what FROM says of its releases since
that of TO, and each release that one channel has withdrawn and the other still offers.
promote skips what was withdrawn from TO. FROM and TO may be versions: CHANNEL@VERSION.

Exit status: 0 they differ, 3 they offer the same.`,
		Example: `  image-catalog diff stage prod
  image-catalog diff prod@31 prod@30
  image-catalog diff stage prod --output json`,
		Args: wantArgs(false, "FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, from, err := a.view(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			to, err := find(cmd.Context(), p, args[1], p.View)
			if err != nil {
				return err
			}
			list, err := p.Diff(cmd.Context(), from.Version, to.Version)
			if err != nil {
				return err
			}
			return a.printDiff(args[0], args[1], list)
		},
	})
}

func (a *app) printDiff(from, to string, list []publish.Difference) error {
	err := a.print(list, func(page *terminal.Page) {
		rows := [][]string{{"IMAGE", from, to, "CHANGE"}}
		for _, d := range list {
			change := d.Change
			if d.WithdrawnFrom != "" {
				change += " from " + d.WithdrawnFrom
			}
			if d.Note != "" {
				change += ": " + d.Note
			}
			if text := d.Summary(); text != "" {
				change += "; " + text
			}
			rows = append(rows, []string{d.Image, cmp.Or(d.From, "-"), cmp.Or(d.To, "-"), change})
		}
		if len(list) == 0 {
			rows = [][]string{{from + " and " + to + " offer the same."}}
		}
		page.Rows(rows)
	})
	if err == nil && len(list) == 0 {
		return cli.Exit(exitNothing)
	}
	return err
}

func (a *app) verifyCommand() *cobra.Command {
	images := false
	cmd := &cobra.Command{
		Use:   "verify [CHANNEL...]",
		Short: "Check the signatures and the content of channels",
		Long: `verify checks all channels, or the named ones: the signature against the keys of --trust, each
page, the log, the version tags, when the channel expires, and pending changes. With --images
it also checks that the registries have all releases that are offered. verify reports a
signature that it cannot check because --trust is missing, unless you use --unsigned.

Exit status: 0 no problems, 1 problems were found, or there is no channel.`,
		Example: `  image-catalog verify --trust stage=ci.pub --trust prod=prod.pub
  image-catalog verify prod --images --trust prod.pub`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.verify(cmd.Context(), args, images) },
	}
	cmd.Flags().BoolVar(&images, "images", false, "also ask the registries of all images")
	cmd.Flags().BoolVar(&a.flags.unsigned, "unsigned", false, "do not check signatures")
	return a.withOutput(cmd)
}

func (a *app) verify(ctx context.Context, channels []string, images bool) error {
	if a.flags.unsigned && len(a.flags.trust) > 0 {
		return cli.Usage(errors.New("--unsigned and --trust exclude each other"))
	}
	for _, channel := range channels {
		if err := publish.CheckChannel(channel); err != nil {
			return err
		}
	}
	p, err := a.publisher(ctx)
	if err != nil {
		return err
	}
	if len(channels) == 0 {
		if channels, err = p.ExistingChannels(ctx); err != nil {
			return err
		}
	}
	if err := a.checkScope(channels); err != nil {
		return err
	}
	all := []publish.Finding{}
	for _, channel := range channels {
		found, err := p.Verify(ctx, channel, images)
		if err != nil {
			return err
		}
		all = append(all, found...)
		if len(a.flags.trust) == 0 && !a.flags.unsigned {
			all = append(all, publish.Finding{
				Channel: channel, Object: channel, Problem: "signature not checked: --trust FILE is missing",
			})
		}
	}
	return a.printFindings(len(channels), all)
}

func (a *app) printFindings(channels int, all []publish.Finding) error {
	err := a.print(all, func(page *terminal.Page) {
		for _, f := range all {
			object := f.Channel
			if f.Object != f.Channel {
				object += ": " + f.Object
			}
			page.Item("", object+": "+f.Problem)
		}
		if len(all) == 0 {
			text := " checked, no problems found."
			if a.flags.unsigned {
				text = " checked except for signatures, no problems found."
			}
			page.Line(terminal.Plural(channels, "channel") + text)
		}
	})
	if err == nil && len(all) > 0 {
		return cli.Exit(exitFailed)
	}
	return err
}

// inspected is `inspect --output json`: with the images of the channel in the place of their number.
type inspected struct {
	listed

	Name    string            `json:"name"`
	Digest  digest.Digest     `json:"digest"`
	Images  []catalog.Page    `json:"images"`
	Waiting []publish.Waiting `json:"waiting"`
	History []catalog.Entry   `json:"history,omitempty"`
}

func (a *app) inspectCommand() *cobra.Command {
	history, most := false, 20
	cmd := &cobra.Command{
		Use:   "inspect CHANNEL [IMAGE...]",
		Short: "Show what a channel offers, or all releases of an image",
		Long: `inspect shows the newest release of each image of a channel. With arguments it shows all
releases of these images: an IMAGE is REPOSITORY, REPOSITORY:TAG or the end of one. CHANNEL
may be a version: CHANNEL@VERSION.`,
		Example: `  image-catalog inspect prod
  image-catalog inspect prod velum
  image-catalog inspect prod --history --limit 5
  image-catalog inspect prod --output json | jq '.images[] | first(.releases[] | select(.withdrawn | not)).digest'`,
		Args: wantArgs(true, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, v, err := a.view(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			out, err := a.inspect(cmd.Context(), p, v, args[1:])
			var log []catalog.Entry
			if err == nil && history {
				log, err = p.Log(cmd.Context(), v.Version)
				out.History = matching(log, args[1:], max(most, 1))
			}
			if err != nil {
				return err
			}
			return a.print(out, func(page *terminal.Page) { writeInspected(page, out, steersOf(log), len(args) > 1) })
		},
	}
	cmd.Flags().BoolVar(&history, "history", false, "also show the last changes, as log does")
	cmd.Flags().IntVar(&most, "limit", most, "show at most this many changes")
	return a.withOutput(cmd)
}

func (a *app) inspect(
	ctx context.Context, p *publish.Publisher, v *publish.View, words []string,
) (inspected, error) {
	pages, _, err := namedPages(ctx, p, v.Version, words)
	return inspected{
		listed: a.listedOf(v.Version), Name: v.Name, Digest: v.Digest, Images: pages, Waiting: v.Waits(),
	}, err
}

// namedPages returns the pages of the images that words name, with the releases that are named by their tags only, and
// the images that are named with tags. Without words, it returns all pages.
func namedPages(
	ctx context.Context, p *publish.Publisher, v publish.Version, words []string,
) (out []catalog.Page, tags map[string][]string, err error) {
	images, tags, err := namedImages(v, words)
	if err != nil {
		return nil, nil, err
	}
	pages, err := p.Pages(ctx, v, images...)
	if err != nil {
		return nil, nil, err
	}
	out = []catalog.Page{}
	for _, ref := range v.Pages {
		page, is := pages[ref.Image]
		if !is {
			continue
		}
		if page, err = publish.OnlyTags(v, page, tags[ref.Image]); err != nil {
			return nil, nil, err
		}
		out = append(out, page)
	}
	return out, tags, nil
}

// namedImages returns the images that words name, and the named tags of each. No words, no tags: all.
func namedImages(v publish.Version, words []string) (images []string, tags map[string][]string, err error) {
	tags = map[string][]string{}
	for _, word := range words {
		name, tag := catalog.SplitMember(word)
		if strings.Contains(tag, "/") { // of a port
			name, tag = word, ""
		}
		image, err := publish.FindImage(v, name)
		if err != nil {
			return nil, nil, err
		}
		images = append(images, image)
		if tag != "" {
			tags[image] = append(tags[image], tag)
		}
	}
	return images, tags, nil
}

func writeInspected(page *terminal.Page, v inspected, steers map[string]string, all bool) {
	page.Line(fmt.Sprintf("%s of %s, version %d", v.Channel, v.Name, v.Version))
	page.Line("Digest:  " + v.Digest.String())
	page.Line("Created: " + page.Past(v.Created))
	if !v.Expires.IsZero() {
		page.Line("Expires: " + page.Next(v.Expires))
	}
	if !v.Frozen.IsZero() {
		page.Line("Frozen:  until " + page.Next(v.Frozen))
	}
	if v.SignedBy != "" {
		page.Line("Signed:  " + v.SignedBy)
	}
	rows := [][]string{{"IMAGE", "TAG", "DIGEST", ""}}
	for _, image := range v.Images {
		for _, r := range image.Releases {
			if !all && r.Withdrawn != nil {
				continue
			}
			rows = append(rows, []string{image.Image, r.Tag, short(r.Digest), marks(page, r)})
			if !all {
				break
			}
		}
	}
	if len(rows) > 1 {
		page.Line("")
		page.Rows(rows)
	}
	if len(v.History) > 0 {
		page.Line("")
		writeLog(page, v.History, steers)
	}
	for _, w := range v.Waiting {
		page.Line(fmt.Sprintf("Not published yet: %s: %s", w.Op, w.Why))
	}
}

// short is a digest for people, long enough to tell it from others.
func short(d digest.Digest) string { return d.String()[:min(len(d), len("sha256:")+12)] }

// marks returns the withdrawal, the set and the rollout of a release as text.
func marks(page *terminal.Page, r catalog.Release) string {
	var out []string
	if w := r.Withdrawn; w != nil {
		text := "withdrawn: " + w.Reason
		if w.To != "" {
			text += ", instead " + w.To
		}
		out = append(out, text)
	}
	if r.Set != "" {
		out = append(out, "set "+r.Set)
	}
	if o := r.Rollout; o != nil {
		if o.Paused != nil {
			out = append(out, fmt.Sprintf("rollout paused at %d %%", o.Share(page.Now)))
		} else {
			out = append(out, fmt.Sprintf("rollout from %s for %d h", page.Clock(o.From), o.Hours))
		}
	}
	if text := r.Advisory.String(); text != "" {
		out = append(out, text)
	}
	if len(r.Critical) > 0 {
		out = append(out, "critical: "+strings.Join(r.Critical, ", "))
	}
	return strings.Join(out, "; ")
}

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
			p, v, err := a.view(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			log, err := p.Log(cmd.Context(), v.Version)
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

// steersOf returns what each op did that only changes rollouts, such as "paused the rollout of", by the op's tag. It
// needs the whole log, the oldest entry first: only the entries before tell a resumed rollout from a promotion.
func steersOf(log []catalog.Entry) map[string]string {
	out := map[string]string{}
	before := map[string]catalog.Release{}
	for _, e := range log {
		if what := steered(e, before); what != "" {
			out[e.Tag] = what + " the rollout of"
		}
		if e.Do == catalog.ActionNote { // it says nothing of rollouts
			continue
		}
		for _, c := range e.Changes {
			before[c.Member()] = c.Release
		}
	}
	return out
}

// steered returns the verb of an op that only changes rollouts; "": it does something else.
func steered(e catalog.Entry, before map[string]catalog.Release) string {
	if e.Do != catalog.ActionPromote {
		return ""
	}
	verb := ""
	for _, c := range e.Changes {
		was, known := before[c.Member()]
		is := c.Release
		what := rolloutVerb(was.Rollout, is.Rollout)
		switch {
		case !known && what == "paused": // the log has dropped the promotion
		case was.Rollout == nil, was.Withdrawn != nil, was.Digest != is.Digest, was.Set != is.Set:
			return ""
		}
		if verb != "" && verb != what {
			what = "changed"
		}
		verb = what
	}
	return verb
}

// rolloutVerb returns what an op did to a rollout.
func rolloutVerb(was, is *catalog.Rollout) string {
	switch {
	case is == nil:
		return "ended"
	case is.Paused != nil && (was == nil || was.Paused == nil):
		return "paused"
	case is.Paused == nil && was != nil && was.Paused != nil:
		return "resumed"
	}
	return "changed"
}
