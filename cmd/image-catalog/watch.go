// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/fleet"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
)

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
	from      fleet.Asker
	channel   string
	selection publish.Selection

	releases  []fleet.Release // all that had a rollout
	withdrawn string          // one of them that is withdrawn now
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
			return cli.Usage(fmt.Errorf("--%s: --watch is missing", flag))
		}
	}
	switch {
	case !w.on:
		return nil
	case steer != (publish.Steer{}) || w.app.flags.out != "" || w.app.flags.dryRun:
		return cli.Usage(errors.New("--watch: want no --pause, --resume, --over, --now, --out or --dry-run"))
	case w.every <= 0 || w.maxFailed < 0 || w.nodes < 0 || w.nodes > 100:
		return cli.Usage(errors.New("want --every and --max-failed above 0, and --nodes from 0 to 100"))
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
		case over && err == nil && !slices.ContainsFunc(list, func(s fleet.Standing) bool { return !s.IsDone(w.nodes) }):
			return w.app.printStandings(list)
		}
		select {
		case <-time.After(w.every):
		case <-ctx.Done():
		}
	}
}

// look returns the standings of all releases that had a rollout, and whether all rollouts are over.
func (w *watch) look(ctx context.Context) (list []fleet.Standing, over bool, err error) {
	v, err := w.publisher.View(ctx, w.channel)
	if err != nil {
		return nil, false, err
	}
	rolling, err := w.rolling(ctx, v)
	if err != nil {
		return nil, false, err
	}
	for _, c := range rolling {
		r := fleet.Release{Image: c.Image, Tag: c.Release.Tag, Digest: c.Release.Digest.String()}
		if !slices.Contains(w.releases, r) {
			w.releases = append(w.releases, r)
		}
	}
	if err := w.findWithdrawn(ctx, v); err != nil {
		return nil, false, err
	}
	list, err = fleet.Ask(ctx, w.from, v.Name+":"+v.Channel, w.releases)
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
func (w *watch) judge(list []fleet.Standing, err error) string {
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
