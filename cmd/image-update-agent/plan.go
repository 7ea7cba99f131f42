// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
)

func (a *app) planCommand() *cobra.Command {
	var offline, diff bool
	var source string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what the next cycle would do, and why not more",
		Long: `plan looks at the node and asks the source, as the next cycle will, and shows the
steps that would follow, which host answered, and each tag that might have been
offered, with the rule that refuses it. It changes nothing.`,
		Example: `  image-update-agent plan
  image-update-agent plan --offline          with the last answers, asking nobody
  image-update-agent plan --offline --diff   and what becomes of each pod manifest
  image-update-agent plan --source oci:/media/stick/images`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := a.settings()
			if err != nil {
				return err
			}
			w, err := a.wireFrom(cmd.Context(), settings, source)
			if err != nil {
				return err
			}
			defer w.close()
			poll := agent.PollAll
			if offline {
				poll = agent.PollNone
			}
			plan, err := w.agent.Plan(cmd.Context(), poll)
			if err != nil {
				return err
			}
			v := viewOf(plan)
			if diff {
				if err := a.addDiffs(settings, plan, v); err != nil {
					return err
				}
			}
			return a.printPlan(v)
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "use the last answers of the sources")
	cmd.Flags().BoolVar(&diff, "diff", false, "show also what becomes of each pod manifest, line by line")
	sourceFlag(cmd, &source)
	a.outputFlag(cmd)
	return cmd
}

// planView is `plan --output json`.
type planView struct {
	Steps  []string    `json:"steps"`
	Pods   []podView   `json:"podManifests"`
	Images []imageView `json:"images"` // of the configuration
}

type podView struct {
	PodManifest string       `json:"podManifest"`
	Change      string       `json:"change"`
	Ready       bool         `json:"ready"`
	Edits       []agent.Edit `json:"edits"` // what an apply changes
	Images      []imageView  `json:"images"`
	Left        []agent.Left `json:"left"`
	Holds       []agent.Hold `json:"holds"`
	Error       string       `json:"error"`
	Diff        string       `json:"diff"` // with --diff

	standing agent.Standing
}

type imageView struct {
	Image   string          `json:"image"`
	Host    string          `json:"host"` // that answered
	Mirror  bool            `json:"mirror"`
	From    string          `json:"from"`
	To      string          `json:"to"`
	Digest  string          `json:"digest"`
	Change  string          `json:"change"`
	Staged  bool            `json:"staged"`
	Refused []agent.Refusal `json:"refused"`
	Notes   []string        `json:"notes"`
	Error   string          `json:"error"`
}

func (a *app) printPlan(v planView) error {
	if a.output == "json" {
		return a.printJSON(v)
	}
	var text strings.Builder
	if err := writePlan(&text, v); err != nil {
		return err
	}
	_, err := io.WriteString(a.out, inZone(text.String(), a.zone))
	for _, p := range v.Pods {
		if err == nil {
			_, err = io.WriteString(a.out, p.Diff)
		}
	}
	return err
}

// addDiffs adds what becomes of each pod manifest to the view of a plan.
func (a *app) addDiffs(s settings, p agent.Plan, v planView) error {
	for n, pod := range p.Pods {
		if pod.Wanted == nil {
			continue
		}
		var err error
		if v.Pods[n].Diff, err = a.diff(s, pod.File, pod.Wanted); err != nil {
			return err
		}
	}
	return nil
}

func viewOf(p agent.Plan) planView {
	v := planView{Steps: []string{}, Pods: []podView{}, Images: []imageView{}}
	for _, s := range p.Steps {
		v.Steps = append(v.Steps, s.String())
	}
	for _, pod := range p.Pods {
		pv := podView{
			PodManifest: pod.File, Change: pod.Change, Ready: pod.Ready, Images: []imageView{},
			Edits: append([]agent.Edit{}, pod.Edits...), standing: pod.Standing(),
			Left: append([]agent.Left{}, pod.Left...), Error: text(pod.Err),
			Holds: slices.Concat([]agent.Hold{}, pod.Holds, pod.Waits),
		}
		for _, i := range pod.Images {
			if i.Want.Ask.Repository != "" {
				pv.Images = append(pv.Images, viewOfImage(i.Want.Ask.Repository, i))
			}
		}
		v.Pods = append(v.Pods, pv)
	}
	for _, i := range p.Tracked {
		v.Images = append(v.Images, viewOfImage(i.Offer.Repository, i))
	}
	return v
}

func viewOfImage(repository string, i agent.ImagePlan) imageView {
	return imageView{
		Image: repository, Host: i.Offer.Host, Mirror: i.Offer.Mirror,
		From: i.From, To: i.Target.Name(), Digest: i.Target.Digest.String(), Change: i.Change, Staged: i.Staged,
		Refused: append([]agent.Refusal{}, i.Offer.Refused...),
		Notes:   append([]string{}, i.Offer.Notes...), Error: text(i.Offer.Err),
	}
}

func writePlan(w io.Writer, v planView) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, p := range v.Pods {
		writePlannedPod(table, p)
	}
	if len(v.Images) > 0 {
		fmt.Fprintln(table, "configuration\timages beside the pod manifests")
	}
	for _, i := range v.Images {
		writePlannedImage(table, i)
	}
	v.writeSteps(table)
	return table.Flush()
}

// writeSteps ends a plan: what the next cycle does, what it leaves to a person, and
// why it does nothing.
func (v planView) writeSteps(w io.Writer) {
	var waiting []string
	for _, p := range v.Pods {
		if p.standing.Result == "" {
			waiting = append(waiting, p.PodManifest)
		}
	}
	switch {
	case len(v.Steps) > 0:
		fmt.Fprintln(w, "\nSteps:")
	case len(waiting) > 0:
		fmt.Fprintln(w, "\nNo steps by itself.")
	case v.obstructed():
		fmt.Fprintln(w, "\nNo steps: what stands in the way is named above.")
	default:
		fmt.Fprintln(w, "\nNo steps: the node is as it should be.")
	}
	for n, s := range v.Steps {
		fmt.Fprintf(w, "  %d. %s\n", n+1, oneLine(s))
	}
	if len(waiting) > 0 {
		fmt.Fprintf(w, "Waiting for `image-update-agent apply`: %s\n", strings.Join(waiting, ", "))
	}
}

// obstructed reports that something keeps the plan from being what it should be. That
// a pod manifest is nobody's to change is none where nothing is newer.
func (v planView) obstructed() bool {
	failed := func(i imageView) bool { return i.Error != "" }
	return slices.ContainsFunc(v.Images, failed) || slices.ContainsFunc(v.Pods, func(p podView) bool {
		return p.Error != "" || slices.ContainsFunc(p.Images, failed) || p.standing.Result == agent.ResultHeld ||
			slices.ContainsFunc(p.Holds, func(h agent.Hold) bool { return h.Name != agent.HoldUnmanaged })
	})
}

func writePlannedPod(w io.Writer, p podView) {
	none := "nothing to change"
	if p.Error != "" {
		none = "not known"
	}
	fmt.Fprintf(w, "%s\t%s\n", p.PodManifest, orText(p.Change, none))
	for _, i := range p.Images {
		writePlannedImage(w, i)
	}
	for _, e := range p.Edits {
		if e.Field == agent.EditPullPolicy { // the images stand above
			fmt.Fprintf(w, "  changes\t%s\n", editText(e))
		}
	}
	for _, h := range p.Holds {
		fmt.Fprintf(w, "  held: %s\t%s\n", h.Name, oneLine(h.Reason))
	}
	for _, l := range p.Left {
		fmt.Fprintf(w, "  line %d left alone\t%s (%s)\n", l.Line, printable(l.Reference), l.Reason)
	}
	if p.Error != "" {
		fmt.Fprintf(w, "  error\t%s\n", oneLine(p.Error))
	}
}

func writePlannedImage(w io.Writer, i imageView) {
	what := "current: " + dash(i.To)
	if i.Change != "" {
		what = fmt.Sprintf("%s: %s -> %s", i.Change, dash(i.From), i.To)
	}
	if i.Host != "" {
		what += ", from " + hostName(i.Host, i.Mirror)
	}
	fmt.Fprintf(w, "  %s\t%s\n", i.Image, what)
	for _, r := range i.Refused {
		fmt.Fprintf(w, "  \t%s\trefused by %s: %s\n", oneLine(r.Tag), r.Rule, oneLine(r.Reason))
	}
	for _, n := range i.Notes {
		fmt.Fprintf(w, "  \t%s\n", oneLine(n))
	}
	if i.Error != "" {
		fmt.Fprintf(w, "  \terror: %s\n", oneLine(i.Error))
	}
}

// hostName says who answered: two hosts have the images of one name.
func hostName(host string, mirror bool) string {
	if mirror {
		return "mirror " + host
	}
	return "upstream " + host
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
