// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/census"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/internal/fleet/prometheus"
)

// rolling is one rollout of `rollout --output json`.
type rolling struct {
	Image  string    `json:"image"`
	Tag    string    `json:"tag"`
	Set    string    `json:"set,omitempty"`
	From   time.Time `json:"from"`
	Hours  int       `json:"hours"`
	Paused bool      `json:"paused"`
	Share  int       `json:"share"` // of the time that has gone, in percent
}

const rolloutLong = `rollout shows the rollouts of a channel that are under way, with the share of their time that
has gone. With a flag it changes them: those of the images, those of a set, or all.

A node has a fixed place in a rollout. --pause holds all nodes whose time has not come.
--resume continues where the pause began. --over makes a rollout longer or shorter: the
share of the time that has gone stays. --now ends it, and all remaining nodes may apply.

--watch asks a Prometheus each minute until the rollouts are over, and pauses them if more than
--max-failed nodes have failed or are lost (see fleet), or if for 5 minutes Prometheus has no
complete answer, or no node reports. It also pauses them if it is interrupted.

Exit status: 0 shown or published, 3 there is no such rollout, or nothing to change,
1 the watch has paused it.`

const rolloutExample = `  image-catalog rollout prod
  image-catalog rollout prod velum --pause --reason "bsc#1199876?" --key prod.key
  image-catalog rollout prod --set caasp-4.5.2 --resume --over 96h --key prod.key
  image-catalog rollout prod velum --watch --prometheus https://prometheus.example.com --key prod.key`

func (a *app) rolloutCommand() *cobra.Command {
	var s publish.Selection
	var steer publish.Steer
	var over string
	w := watch{app: a}
	cmd := &cobra.Command{
		Use:   "rollout CHANNEL [IMAGE...]",
		Short: "Show, pause, resume or change rollouts",
		Long:  rolloutLong, Example: rolloutExample,
		Args: wantArgs(true, "CHANNEL"),
	}
	reason := cmd.Flags().String("reason", "", "why, for the log")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s.Images = args[1:]
		if len(s.Images) > 0 && s.Set != "" {
			return cli.Usage(errors.New("want either IMAGE... or --set NAME"))
		}
		if err := errors.Join(exclusive(cmd, "pause", "resume", "now"), exclusive(cmd, "now", "resume", "over")); err != nil {
			return err
		}
		if over != "" {
			var err error
			if steer.Hours, err = hours("over", over); err != nil {
				return err
			}
		}
		if err := w.check(cmd, steer); err != nil {
			return err
		}
		if w.on {
			return w.run(cmd.Context(), args[0], s)
		}
		return a.steer(cmd, args[0], s, steer, *reason)
	}
	cmd.Flags().StringVar(&s.Set, "set", "", "the rollout of this set")
	cmd.Flags().BoolVar(&steer.Pause, "pause", false, "hold the nodes whose time has not come")
	cmd.Flags().BoolVar(&steer.Resume, "resume", false, "continue a paused rollout")
	cmd.Flags().StringVar(&over, "over", "", "the new length: 96h, 7d")
	cmd.Flags().BoolVar(&steer.Now, "now", false, "end the rollout: all nodes at once")
	w.define(cmd)
	a.withPrometheus(cmd)
	return a.withOut(cmd)
}

func (a *app) steer(
	cmd *cobra.Command, channel string, s publish.Selection, steer publish.Steer, reason string,
) error {
	p, err := a.publisher(cmd.Context())
	if err != nil {
		return err
	}
	if steer != (publish.Steer{}) {
		return a.change(cmd.Context(), p, channel, publish.Roll(s, steer), publish.How{Reason: reason})
	}
	v, err := find(cmd.Context(), p, channel, p.Offer)
	if err != nil {
		return err
	}
	all, err := v.Rolling(cmd.Context(), s)
	if err != nil {
		return err
	}
	list := []rolling{}
	for _, c := range all {
		list = append(list, rollingOf(c, a.now()))
	}
	err = a.print(list, func(page *terminal.Page) { writeRolling(page, list) })
	if err == nil && len(list) == 0 {
		return cli.Exit(exitNothing)
	}
	return err
}

func rollingOf(c catalog.Change, now time.Time) rolling {
	o := *c.Release.Rollout
	out := rolling{
		Image: c.Image, Tag: c.Release.Tag, Set: c.Release.Set, From: o.From, Hours: o.Hours,
		Paused: o.Paused != nil, Share: o.Share(now),
	}
	if o.Paused != nil {
		out.From = o.Paused.From
	}
	return out
}

func writeRolling(page *terminal.Page, list []rolling) {
	if len(list) == 0 {
		page.Line("No rollout is under way.")
		return
	}
	rows := [][]string{{"IMAGE", "TAG", "SET", "FROM", "LENGTH", "GONE"}}
	for _, r := range list {
		gone := fmt.Sprintf("%d %%", r.Share)
		if r.Paused {
			gone += ", paused"
		}
		rows = append(rows, []string{r.Image, r.Tag, r.Set, page.Clock(r.From), fmt.Sprintf("%d h", r.Hours), gone})
	}
	page.Rows(rows)
}

// hours reads the length of a rollout.
func hours(flag, text string) (int, error) {
	d, err := span(flag, text)
	if err != nil {
		return 0, err
	}
	n := int((d + time.Hour - 1) / time.Hour)
	if n > catalog.MaxHours {
		return 0, cli.Usage(fmt.Errorf("--%s %s: want at most %d days", flag, text, catalog.MaxHours/24))
	}
	return n, nil
}

const (
	// patience is how long a watched rollout goes on without an answer.
	patience = 5 * time.Minute
	// lastWords is how long an interrupted watch may take to pause the rollout.
	lastWords = 30 * time.Second
	// maxWhy bounds the reason of a pause, in bytes.
	maxWhy = 400
)

// watch pauses rollouts if nodes fail.
type watch struct {
	on        bool
	every     time.Duration
	maxFailed int
	nodes     int // percent

	app       *app
	publisher *publish.Publisher
	from      census.Asker
	channel   string
	selection publish.Selection

	releases  []census.Release // all that had a rollout
	withdrawn string           // one of them that is withdrawn now
	answered  time.Time
	said      string
}

func (w *watch) define(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.on, "watch", false, "ask Prometheus until the rollouts are over, and pause them if nodes fail")
	cmd.Flags().DurationVar(&w.every, "every", time.Minute, "with --watch: how often to ask")
	cmd.Flags().IntVar(&w.maxFailed, "max-failed", 0, "with --watch: this many nodes may fail or be lost")
	cmd.Flags().IntVar(&w.nodes, "nodes", 0, "with --watch: wait until this many percent of the nodes run the release")
}

// check checks that the flags fit together.
func (w *watch) check(cmd *cobra.Command, steer publish.Steer) error {
	for _, flag := range []string{"every", "max-failed", "nodes", "prometheus", "token-file"} {
		if !w.on && cmd.Flags().Changed(flag) {
			return cli.Usage(fmt.Errorf("--%s requires --watch", flag))
		}
	}
	switch {
	case !w.on:
		return nil
	case steer != (publish.Steer{}) || w.app.flags.out != "" || w.app.flags.dryRun:
		return cli.Usage(errors.New("--watch excludes --pause, --resume, --over, --now, --out and --dry-run"))
	case w.every <= 0 || w.maxFailed < 0 || w.nodes < 0 || w.nodes > 100:
		return cli.Usage(errors.New("--every and --max-failed must be above 0, and --nodes from 0 to 100"))
	}
	return nil
}

// run watches until the rollouts are over. Whatever else ends it pauses them.
func (w *watch) run(ctx context.Context, channel string, s publish.Selection) (err error) {
	w.channel, w.selection = channel, s
	if w.from, err = w.app.asker(); err != nil {
		return err
	}
	if w.publisher, err = w.app.publisher(ctx); err != nil {
		return err
	}
	if _, err := w.pause(ctx, "", true); err != nil { // with this key and registry
		return err
	}
	w.app.grace.Store(int64(lastWords + grace))
	w.answered = w.app.now()
	for {
		list, over, err := w.look(ctx)
		switch why := w.judge(list, err); {
		case ctx.Err() != nil:
			return w.stop(ctx, "the watch was stopped")
		case why != "":
			return w.stop(ctx, why)
		case over && err == nil && !slices.ContainsFunc(list, func(s census.Standing) bool { return !s.IsDone(w.nodes) }):
			return w.app.printStandings(list)
		}
		select {
		case <-time.After(w.every):
		case <-ctx.Done():
		}
	}
}

// look returns the standings of all releases that had a rollout, and whether all rollouts are over.
func (w *watch) look(ctx context.Context) (list []census.Standing, over bool, err error) {
	v, err := w.publisher.View(ctx, w.channel)
	if err != nil {
		return nil, false, err
	}
	rolling, err := w.rolling(ctx, v)
	if err != nil {
		return nil, false, err
	}
	for _, c := range rolling {
		r := census.Release{Image: c.Image, Tag: c.Release.Tag, Digest: c.Release.Digest.String()}
		if !slices.Contains(w.releases, r) {
			w.releases = append(w.releases, r)
		}
	}
	if err := w.findWithdrawn(ctx, v); err != nil {
		return nil, false, err
	}
	list, err = census.Ask(ctx, w.from, v.Name+":"+v.Channel, w.releases)
	return list, len(rolling) == 0, err
}

func (w *watch) findWithdrawn(ctx context.Context, v *publish.View) error {
	images := []string{}
	for _, r := range w.releases {
		images = append(images, r.Image)
	}
	pages, err := v.Pages(ctx, images...)
	for _, r := range w.releases {
		for _, is := range pages[r.Image].Releases {
			if is.Digest.String() == r.Digest && is.Withdrawn != nil {
				w.withdrawn = r.Image + ":" + r.Tag + " was withdrawn: " + is.Withdrawn.Reason
			}
		}
	}
	return err
}

// rolling returns the rollouts of the selection; none if they are over.
func (w *watch) rolling(ctx context.Context, v *publish.View) ([]catalog.Change, error) {
	all, err := v.Rolling(ctx, w.selection)
	if e, is := errors.AsType[*publish.Error](err); is && e.Kind == publish.KindImage && len(w.releases) > 0 {
		return nil, nil
	}
	return all, err
}

// judge returns why the rollouts must not go on; "" if they may.
func (w *watch) judge(list []census.Standing, err error) string {
	now := w.app.now()
	for _, s := range list {
		err = cmp.Or(err, s.Known())
	}
	if err != nil {
		w.say("no answer: " + err.Error())
		if now.Sub(w.answered) > patience {
			return "no answer for " + patience.String() + ": " + err.Error()
		}
		return ""
	}
	w.answered = now
	if w.withdrawn != "" {
		return w.withdrawn
	}
	for _, s := range list {
		if s.Bad() > w.maxFailed {
			return s.Sentence()
		}
	}
	for _, s := range list {
		w.say(s.Sentence())
	}
	return ""
}

// say prints what has changed for the log of a CI job.
func (w *watch) say(text string) {
	if text = outside.Text(text); text != w.said {
		w.said = text
		w.app.progress.end()
		fmt.Fprintf(w.app.err, "%s %s\n", w.app.now().UTC().Format(time.RFC3339), text)
	}
}

// stop pauses the rollouts, and returns why as an error. It tries again until it succeeds, or until lastWords after an
// interrupt.
func (w *watch) stop(ctx context.Context, why string) error {
	for {
		trying, end := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		n, err := w.pause(trying, why, false)
		end()
		switch {
		case err == nil && n == 0:
			return errors.New(why + "; its rollout is over or paused already")
		case err == nil:
			return errors.New("paused: " + why)
		case ctx.Err() != nil:
			return fmt.Errorf("%s, and the rollout is NOT paused: %w", why, err)
		}
		w.say("cannot pause: " + err.Error())
		select {
		case <-time.After(min(w.every, time.Minute)):
		case <-ctx.Done():
		}
	}
}

// pause pauses the rollouts of the selection, and returns their number.
func (w *watch) pause(ctx context.Context, why string, dryRun bool) (int, error) {
	v, err := w.publisher.View(ctx, w.channel)
	if err != nil {
		return 0, err
	}
	rolling, err := w.rolling(ctx, v)
	if err == nil && len(rolling) == 0 && dryRun {
		err = cli.Exit(exitNothing)
	}
	running := slices.DeleteFunc(rolling, func(c catalog.Change) bool { return c.Release.Rollout.Paused != nil })
	if err != nil || len(running) == 0 {
		return 0, err
	}
	_, err = w.publisher.Change(ctx, w.channel, publish.Roll(w.selection, publish.Steer{Pause: true}), publish.How{
		DryRun: dryRun, Reason: outside.Line(outside.Text(why), maxWhy),
	})
	return len(running), err
}

// prometheusVariable has the URL of the Prometheus, if no flag has.
const prometheusVariable = "IMAGE_CATALOG_PROMETHEUS"

// withPrometheus adds the flags of verbs that ask a Prometheus.
func (a *app) withPrometheus(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.flags.prometheus, "prometheus", "",
		"URL of the Prometheus with the nodes' metrics (default: the variable "+prometheusVariable+")")
	cmd.Flags().StringVar(&a.flags.tokenFile, "token-file", "", "bearer token for the Prometheus")
	_ = cmd.MarkFlagFilename("token-file") // just defined
}

// asker returns the Prometheus.
func (a *app) asker() (*prometheus.Client, error) {
	server := cmp.Or(a.flags.prometheus, os.Getenv(prometheusVariable))
	if server == "" {
		return nil, cli.Usage(errors.New("--prometheus URL or the variable " + prometheusVariable + " is missing"))
	}
	c, err := prometheus.New(server, a.flags.tokenFile, program+"/"+version)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--prometheus: %w", err))
	}
	return c, nil
}

func (a *app) fleetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet CHANNEL [IMAGE...]",
		Short: "Show how many nodes run the releases of a channel",
		Long: `fleet asks a Prometheus how many nodes of a channel run the newest release of each image, and
which nodes have failed. An IMAGE is REPOSITORY, REPOSITORY:TAG or the end of one.

A node that is lost had begun the release, and has not reported for 15 minutes. Nodes count as
silent for a day after their last report.

Exit status: 0 no node has failed or is lost, 1 one has, or it is not known: Prometheus has no
answer, no node reports an image, or several machines share a label instance.`,
		Example: `  image-catalog fleet prod --prometheus https://prometheus.example.com
  image-catalog fleet prod velum:4.0.0-rev2-build1.5 --output json | jq -r '.[].failedNodes[]'`,
		Args: wantArgs(true, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := a.asker()
			if err != nil {
				return err
			}
			p, v, err := a.view(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			wanted, err := offeredReleases(cmd.Context(), p, v.Version, args[1:])
			if err != nil {
				return err
			}
			list, err := census.Ask(cmd.Context(), from, v.Name+":"+v.Channel, wanted)
			if err != nil {
				return err
			}
			return a.printFleet(list)
		},
	}
	a.withPrometheus(cmd)
	return a.withOutput(cmd)
}

// offeredReleases returns the newest offered release of each image, or those that words name.
func offeredReleases(
	ctx context.Context, p *publish.Publisher, v publish.Version, words []string,
) ([]census.Release, error) {
	pages, tags, err := namedPages(ctx, p, v, words)
	if err != nil {
		return nil, err
	}
	var out []census.Release
	for _, page := range pages {
		wanted := page.Releases
		if len(tags[page.Image]) == 0 {
			wanted = slices.DeleteFunc(slices.Clone(wanted), func(r catalog.Release) bool { return r.Withdrawn != nil })
			wanted = wanted[:min(len(wanted), 1)]
		}
		for _, r := range wanted {
			out = append(out, census.Release{Image: page.Image, Tag: r.Tag, Digest: r.Digest.String()})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("channel %s offers no release", v.Channel)
	}
	return out, nil
}

func (a *app) printStandings(list []census.Standing) error {
	return a.print(list, func(page *terminal.Page) {
		for _, s := range list {
			page.Line(s.Sentence())
		}
	})
}

// printFleet prints what nodes have reported. It fails if that is bad, or is not the whole answer.
func (a *app) printFleet(list []census.Standing) error {
	err := a.printStandings(list)
	bad := false
	for _, s := range list {
		err = cmp.Or(err, s.Known())
		bad = bad || s.Bad() > 0
	}
	if err == nil && bad {
		return cli.Exit(exitFailed)
	}
	return err
}

// fleetHint says where to look if no node has reported an image.
func fleetHint(e *census.NothingError) string {
	others := slices.DeleteFunc(slices.Clone(e.Catalogs), func(name string) bool {
		return name == "" || name == e.Catalog
	})
	switch {
	case len(e.Catalogs) == 0:
		return "this Prometheus has no metrics of image-update-agent: check --prometheus, and metrics.listen of the nodes"
	case slices.Contains(e.Catalogs, e.Catalog):
		return "nodes report other images: `image-update-agent status` on a node shows the repositories that it follows"
	case len(others) == 0:
		return "the nodes of this Prometheus follow no catalog"
	}
	return "nodes of this Prometheus follow " + strings.Join(others[:min(len(others), maxCatalogs)], ", ")
}

// maxCatalogs bounds the catalogs in a hint.
const maxCatalogs = 5
