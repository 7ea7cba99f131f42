// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/api"
)

func (a *app) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what runs, what is offered, and why not more",
		Long: `status shows the node as the daemon knows it. Without a daemon it shows the last
status that was written, and how old it is.`,
		Example: `  image-update-agent status
  image-update-agent status --output json | jq -r .state`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := a.settings()
			if err != nil {
				return err
			}
			s, err := api.NewClient(settings.socket("status.sock")).Status(cmd.Context())
			if errors.Is(err, api.ErrNoDaemon) {
				var last error
				if s, last = settings.lastStatus(); last != nil {
					return errors.Join(err, last)
				}
				fmt.Fprintf(a.err, "no daemon answers; this is the status of %s (%s)\n",
					clock(s.Written), ago(time.Since(s.Written)))
			} else if err != nil {
				return err
			}
			return a.printStatus(s)
		},
	}
	a.outputFlag(cmd)
	return cmd
}

// printStatus writes a status as the user asked for it.
func (a *app) printStatus(s agent.Status) error {
	if a.output == "json" {
		return a.printJSON(s)
	}
	return writeStatus(a.out, s, time.Now())
}

// writeStatus is the page for people: what, since when, why, what next.
func writeStatus(w io.Writer, s agent.Status, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "State:\t%s since %s (%s)\n", s.State, clock(s.Since), ago(now.Sub(s.Since)))
	fmt.Fprintf(table, "\t%s\n", s.Reason)
	if s.LastCheck != nil {
		fmt.Fprintf(table, "Last check:\t%s (%s)\n", clock(*s.LastCheck), ago(now.Sub(*s.LastCheck)))
	} else {
		fmt.Fprintf(table, "Last check:\tnever\n")
	}
	if s.NextCheck != nil {
		fmt.Fprintf(table, "Next check:\t%s\n", clock(*s.NextCheck))
	} else {
		fmt.Fprintf(table, "Next check:\tpolling is off\n")
	}
	for n, pull := range s.Pulls {
		label := "Pulling:"
		if n > 0 {
			label = ""
		}
		fmt.Fprintf(table, "%s\t%s\n", label, progressLine(pull))
	}
	if hosts := hostsOf(s.Images); hosts != "" {
		fmt.Fprintf(table, "Answered by:\t%s\n", hosts)
	}
	if b := s.Budget; b != nil && b.Left*nearlySpent < b.PerHour {
		fmt.Fprintf(table, "Requests:\t%d of %d left in this hour (requestsPerHour)\n", b.Left, b.PerHour)
	}
	if p := s.Progress; p != nil {
		fmt.Fprintf(table, "Now:\t%s %s\n", p.Phase, p.Reference)
	}
	writeImages(table, s)
	writeTrouble(table, s, now)
	if n := advice(s); n != "" {
		fmt.Fprintf(table, "\n%s\n", n)
	}
	return table.Flush()
}

// nearlySpent is the part of the budget below which it is told of: a tenth.
const nearlySpent = 10

// hostsOf counts the images for which each host answered, in the order of their
// names.
func hostsOf(images []agent.ImageStatus) string {
	answers := map[string]map[string]bool{}
	for _, i := range images {
		if i.Host == "" {
			continue
		}
		name := hostName(i.Host, i.Mirror)
		if answers[name] == nil {
			answers[name] = map[string]bool{}
		}
		answers[name][i.Image] = true
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		if n := len(answers[name]); n == 1 {
			out = append(out, name+" (1 image)")
		} else {
			out = append(out, fmt.Sprintf("%s (%d images)", name, n))
		}
	}
	return strings.Join(out, ", ")
}

func writeImages(w io.Writer, s agent.Status) {
	if len(s.Images) == 0 {
		fmt.Fprintln(w, "\nNo pod manifest uses an image that can be followed.")
		return
	}
	fmt.Fprintln(w, "\nPOD MANIFEST\tCONTAINER\tIMAGE\tFOLLOWS\tRUNS\tOFFERED\tCHANGE")
	for _, i := range s.Images {
		change := dash(i.Change)
		if i.Offered != nil && !i.Staged {
			change += " (not staged)"
		}
		if i.Adopted {
			change += " (adopted)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", dash(i.PodManifest), dash(i.Container),
			i.Image, dash(i.Follow), name(i.Running), name(i.Offered), change)
	}
}

// writeTrouble lists what stands in the way, each once.
func writeTrouble(w io.Writer, s agent.Status, now time.Time) {
	for _, p := range s.PodManifests {
		if p.Error != "" {
			fmt.Fprintf(w, "\n%s:\terror: %s", p.PodManifest, p.Error)
		}
		for _, h := range p.Holds {
			fmt.Fprintf(w, "\n%s:\theld: %s: %s", p.PodManifest, h.Name, h.Reason)
		}
		for _, l := range p.Left {
			fmt.Fprintf(w, "\n%s:%d:\tleft alone: %s (%s)", p.PodManifest, l.Line, printable(l.Reference), l.Reason)
		}
	}
	writeNotes(w, s.Images)
	for _, r := range s.Sources {
		if r.Failures > 0 {
			last := "never answered"
			if r.LastSuccess != nil {
				last = "last answered " + ago(now.Sub(*r.LastSuccess))
			}
			fmt.Fprintf(w, "\nsource:\t%s (%d times, %s)", r.Error, r.Failures, last)
		}
		if r.Insecure {
			fmt.Fprintf(w, "\nsource:\t%s answers for %s without verified TLS", r.Host, r.Repository)
		}
	}
	fmt.Fprintln(w)
}

// writeNotes lists what there is to say of images; containers of one pod often
// have the same.
func writeNotes(w io.Writer, images []agent.ImageStatus) {
	seen := map[string]bool{}
	write := func(podManifest, text string) {
		if line := fmt.Sprintf("\n%s:\t%s", dash(podManifest), oneLine(text)); text != "" && !seen[line] {
			seen[line] = true
			fmt.Fprint(w, line)
		}
	}
	for _, i := range images {
		write(i.PodManifest, i.Error)
		for _, n := range i.Notes {
			write(i.PodManifest, n)
		}
	}
}

// oneLine keeps text from outside, such as the labels of an image, from writing
// elsewhere on a terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// advice is the next thing a person can do.
func advice(s agent.Status) string {
	switch s.State {
	case agent.StateStaged:
		return "To bring it into use: image-update-agent apply"
	case agent.StateFailed, agent.StateStale:
		return "To find out more: image-update-agent doctor"
	default:
		return ""
	}
}

// name is a digest's tag, else its first digits; the full one is in the JSON.
func name(n *agent.Named) string {
	switch {
	case n == nil:
		return "-"
	case n.Tag != "":
		return n.Tag
	default:
		return n.Digest.Encoded()[:12]
	}
}

func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// ago is a duration for people, in its largest unit.
func ago(d time.Duration) string {
	switch {
	case d < 0:
		return "in the future: the clock was set"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd ago", int(d.Hours()/24))
	}
}
