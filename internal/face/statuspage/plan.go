// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/preview"
	"github.com/kubic-project/image-update-agent/agent/status"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/manifests"
)

// PlanView is `plan --output json`.
type PlanView struct {
	Steps  []StepView  `json:"steps"`
	Pods   []PodView   `json:"podManifests"`
	Images []ImageView `json:"images"` // of the configuration
}

// StepView is a step of a plan.
type StepView struct {
	Do          plan.Verb `json:"do"`
	PodManifest string    `json:"podManifest,omitempty"`
	Image       string    `json:"image,omitempty"` // repository
	Tag         string    `json:"tag,omitempty"`
	Digest      string    `json:"digest,omitempty"`
	Change      string    `json:"change,omitempty"`
	Count       int       `json:"count,omitempty"` // of images, for pin and prune
	Text        string    `json:"text"`            // for people
}

// PodView is a pod manifest of a plan.
type PodView struct {
	PodManifest string             `json:"podManifest"`
	Change      string             `json:"change"`
	Ready       bool               `json:"ready"`
	Edits       []status.Edit      `json:"edits"` // what an apply changes
	Images      []ImageView        `json:"images"`
	Untouched   []status.Untouched `json:"untouched"`
	Holds       []status.Hold      `json:"holds"`
	Error       string             `json:"error"`
	ErrorKind   status.ErrorKind   `json:"errorKind"`
	Diff        string             `json:"diff"` // with --diff

	standing plan.Standing
}

// ImageView is an image of a plan.
type ImageView struct {
	Image     string           `json:"image"`
	Host      string           `json:"host"` // that answered
	Mirror    bool             `json:"mirror"`
	From      string           `json:"from"`
	To        string           `json:"to"`
	Digest    string           `json:"digest"`
	Change    string           `json:"change"`
	Brings    *format.Brought  `json:"brings,omitempty"` // absent: the catalog says nothing of it
	Staged    bool             `json:"staged"`
	Refused   []policy.Refusal `json:"refused"`
	Notes     []string         `json:"notes"`
	Error     string           `json:"error"`
	ErrorKind status.ErrorKind `json:"errorKind"`
}

// ViewOf is what a plan shows.
func ViewOf(p plan.Plan) PlanView {
	v := PlanView{Steps: []StepView{}, Pods: []PodView{}, Images: []ImageView{}}
	for _, s := range p.Steps {
		v.Steps = append(v.Steps, stepViewOf(s))
	}
	for _, pod := range p.Pods {
		pv := PodView{
			PodManifest: pod.File, Change: pod.Change, Ready: pod.Ready, Images: []ImageView{},
			Edits: append([]status.Edit{}, pod.Edits...), standing: pod.Standing(),
			Untouched: append([]status.Untouched{}, pod.Untouched...),
			Error:     text(pod.Err), ErrorKind: status.ErrorKindOf(pod.Err),
			Holds: status.Explained(pod.Holds, pod.Waits),
		}
		for _, i := range pod.Images {
			if i.Want.Ask.Repository != "" {
				pv.Images = append(pv.Images, imageViewOf(i.Want.Ask.Repository, i))
			}
		}
		v.Pods = append(v.Pods, pv)
	}
	for _, i := range p.Tracked {
		v.Images = append(v.Images, imageViewOf(i.Offer.Repository, i))
	}
	return v
}

func stepViewOf(s plan.Step) StepView {
	v := StepView{
		Do: s.Do, PodManifest: s.File, Change: s.Apply.Change, Count: s.Count(), Text: s.String(),
	}
	if s.Do == plan.StepStage {
		v.Image, v.Tag, v.Digest = s.Release.Repository, s.Release.Name(), s.Release.Digest.String()
	}
	return v
}

func imageViewOf(repository string, i plan.ImagePlan) ImageView {
	return ImageView{
		Image: repository, Host: i.Offer.Host, Mirror: i.Offer.Mirror,
		From: i.Running.Tag, To: i.Target.Name(), Digest: i.Target.Digest.String(), Change: i.Change, Staged: i.Staged,
		Brings:  i.Brings.OrNil(),
		Refused: append([]policy.Refusal{}, i.Offer.Refused...),
		Notes:   append([]string{}, i.Offer.Notes...), Error: text(i.Offer.Err), ErrorKind: status.ErrorKindOf(i.Offer.Err),
	}
}

// Write writes a plan for people, with their times in zone, and then the differences of its pod manifests.
func (v PlanView) Write(w io.Writer, zone *time.Location) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, p := range v.Pods {
		p.write(table)
	}
	if len(v.Images) > 0 {
		fmt.Fprintln(table, "configuration\timages from the configuration")
	}
	for _, i := range v.Images {
		i.write(table)
	}
	v.writeSteps(table)
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, terminal.InZone(text.String(), zone))
	for _, p := range v.Pods {
		if err == nil {
			_, err = io.WriteString(w, p.Diff)
		}
	}
	return err
}

// writeSteps ends a plan: what the next cycle does, what it leaves to a person, and
// why it does nothing.
func (v PlanView) writeSteps(w io.Writer) {
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
		fmt.Fprintln(w, "\nNothing happens without approval.")
	case v.obstructed():
		fmt.Fprintln(w, "\nNothing to do now: the reasons are shown above.")
	default:
		fmt.Fprintln(w, "\nNothing to do: everything is up to date.")
	}
	for n, s := range v.Steps {
		fmt.Fprintf(w, "  %d. %s\n", n+1, terminal.OneLine(s.Text))
	}
	if len(waiting) > 0 {
		fmt.Fprintf(w, "Waiting for `image-update-agent apply`: %s\n", strings.Join(waiting, ", "))
	}
}

// obstructed reports that something prevents a better plan, or that a tag which is not offered is newer or may be. An
// unmanaged pod manifest for which nothing is newer does not count, nor one that the distribution writes.
func (v PlanView) obstructed() bool {
	failed := func(i ImageView) bool { return i.Error != "" || len(i.Refused)+len(i.Notes) > 0 }
	return slices.ContainsFunc(v.Images, failed) || slices.ContainsFunc(v.Pods, func(p PodView) bool {
		return p.Error != "" || slices.ContainsFunc(p.Images, failed) || isHeld(p.standing) ||
			slices.ContainsFunc(p.Holds, func(h status.Hold) bool { return !h.IsUnmanaged() })
	})
}

func isHeld(at plan.Standing) bool {
	return at.Result == status.ResultHeld && at.Hold != status.HoldDistribution
}

func (p PodView) write(w io.Writer) {
	none := "no change"
	if p.Error != "" {
		none = "unknown"
	}
	fmt.Fprintf(w, "%s\t%s\n", p.PodManifest, cmp.Or(p.Change, none))
	for _, i := range p.Images {
		i.write(w)
	}
	for _, e := range p.Edits {
		if e.Field == status.EditPullPolicy { // the images stand above
			fmt.Fprintf(w, "  changes\t%s\n", editText(e))
		}
	}
	for _, h := range p.Holds {
		fmt.Fprintf(w, "  held: %s\t%s\n", h.Name, terminal.OneLine(h.Reason))
	}
	for _, l := range p.Untouched {
		fmt.Fprintf(w, "  line %d\t%s: %s\n", l.Line, terminal.Quoted(l.Name()), l.Text)
	}
	if p.Error != "" {
		fmt.Fprintf(w, "  error\t%s\n", terminal.OneLine(p.Error))
	}
}

func (i ImageView) write(w io.Writer) {
	what := "current: " + cmp.Or(i.To, "-")
	if i.Change != "" {
		what = fmt.Sprintf("%s: %s -> %s", i.Change, cmp.Or(i.From, "-"), i.To)
	}
	if i.Host != "" {
		what += ", from " + hostName(i.Host, i.Mirror)
	}
	fmt.Fprintf(w, "  %s\t%s\n", i.Image, what)
	if i.Brings != nil {
		fmt.Fprintf(w, "  \tbrings %s\n", bringsText(*i.Brings))
	}
	for _, r := range i.Refused {
		fmt.Fprintf(w, "  \t%s\trefused by %s: %s\n", terminal.OneLine(r.Tag), r.Rule, terminal.OneLine(r.Reason))
	}
	for _, n := range i.Notes {
		fmt.Fprintf(w, "  \t%s\n", terminal.OneLine(n))
	}
	if i.Error != "" {
		fmt.Fprintf(w, "  \terror: %s\n", terminal.OneLine(i.Error))
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// BootStep is what became of a pod manifest at boot, as `render` shows it.
type BootStep struct {
	PodManifest string `json:"podManifest"`
	Result      string `json:"result"` // written, removed, unchanged
	Reason      string `json:"reason"`
}

const bootUnchanged = "unchanged"

// BootSteps returns a view of each step.
func BootSteps(steps []plan.BootStep) []BootStep {
	views := make([]BootStep, 0, len(steps))
	for _, s := range steps {
		v := BootStep{s.File, "written", s.Reason}
		switch {
		case s.Do == "":
			v.Result = bootUnchanged
		case s.Err != nil:
			v.Result, v.Reason = bootUnchanged, s.Err.Error()
		case s.Do == plan.StepRemove:
			v.Result = "removed"
		}
		views = append(views, v)
	}
	return views
}

// WriteBoot writes a line for each pod manifest.
func WriteBoot(w io.Writer, views []BootStep, zone *time.Location) error {
	for _, v := range views {
		if _, err := fmt.Fprintf(w, "%s %s: %s\n", v.PodManifest, v.Result, terminal.InZone(v.Reason, zone)); err != nil {
			return err
		}
	}
	return nil
}

// WritePreview writes a row for each image: what it runs, what it would get, and what is newer with the setting that
// would allow it. Below the table are the images that a person has to do something about.
func WritePreview(w io.Writer, images []preview.Image, now time.Time) error {
	p := terminal.NewPage(w, now)
	rows, last := [][]string{{"POD, CONTAINER", "IMAGE", "RUNS", "WOULD GET", "NEWER"}}, ""
	for n, i := range images {
		if n == 0 || i.File != last {
			rows = append(rows, []string{i.File})
			last = i.File
		}
		if i.Reference != "" || i.Error == "" { // else the error is about the whole file
			rows = append(rows, rowsOfPreview(i)...)
		}
	}
	switch {
	case len(images) == 0:
	case p.Fits(rows):
		p.Rows(rows)
	default:
		stackedPreview(p, rows[1:])
	}
	each(p, images, "Unknown:", func(i preview.Image) []string { return []string{i.Error} })
	each(p, images, "Held:", func(i preview.Image) []string { return []string{i.Held} })
	each(p, images, "Left as it is:", func(i preview.Image) []string {
		if i.Untouched == "" {
			return nil
		}
		return []string{manifests.ReasonText(i.Untouched)}
	})
	each(p, images, "Rebuilds only:", func(i preview.Image) []string {
		if i.RebuildsOnly == nil {
			return nil
		}
		return []string{i.RebuildsOnly.Reason + "; " + understood(*i.RebuildsOnly)}
	})
	each(p, images, "Notes:", func(i preview.Image) []string { return i.Notes })
	return p.Flush()
}

// rowsOfPreview returns the rows of an image: one, and one more for each further newer tag.
func rowsOfPreview(i preview.Image) [][]string {
	is := manifests.SplitReference(i.Reference)
	runs := cmp.Or(is.Tag, "latest")
	if d := digest.Digest(is.Digest); is.Tag == "" && d.Validate() == nil {
		runs = name(&status.Named{Digest: d})
	}
	if i.Reference == "" {
		runs = "-"
	}
	gets, newer := "-", []string{"-"}
	switch {
	case i.Error != "":
		gets, newer = "unknown", []string{"unknown"}
	case i.Offered != "" && i.Held != "":
		newer = []string{i.Offered + " (held)"}
	case i.Offered != "":
		gets = i.Offered + " (" + i.Change + ")"
	}
	if len(i.NotAllowed) > 0 {
		newer = slices.DeleteFunc(newer, func(cell string) bool { return cell == "-" })
		for _, no := range i.NotAllowed {
			by := allowing(no)
			if i.Held != "" {
				by = "held"
			}
			newer = append(newer, no.Tag+" ("+by+")")
		}
	}
	rows := [][]string{{"  " + cmp.Or(i.Container, "(volume)"), cmp.Or(i.Repository, is.Name, "-"), runs, gets, newer[0]}}
	for _, more := range newer[1:] {
		rows = append(rows, []string{"", "", "", "", more})
	}
	return rows
}

// stackedPreview writes the rows, without their titles, one cell below the other.
func stackedPreview(p *terminal.Page, rows [][]string) {
	for _, row := range rows {
		switch {
		case len(row) == 1:
			p.Line(row[0])
			continue
		case row[0] != "":
			p.Line(row[0] + "  " + row[1])
			p.Line("    runs       " + row[2])
			if row[3] != "-" {
				p.Line("    would get  " + row[3])
			}
		}
		if row[4] != "-" {
			p.Line("    newer      " + row[4])
		}
	}
}

// each writes a section, if it has an item: each text once, after the images that it is about.
func each(p *terminal.Page, images []preview.Image, title string, of func(i preview.Image) []string) {
	about, texts := map[string][]string{}, []string{}
	for _, i := range images {
		place := i.File
		if i.Reference != "" || i.Container != "" {
			place = cmp.Or(i.Reference, i.Container)
		}
		for _, text := range of(i) {
			if text == "" {
				continue
			}
			if about[text] == nil {
				texts = append(texts, text)
			}
			if !slices.Contains(about[text], place) {
				about[text] = append(about[text], place)
			}
		}
	}
	p.Section(title)
	for _, text := range texts {
		p.Item("  "+strings.Join(about[text], ", ")+": ", text)
	}
}
