// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
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
				switch s, last = settings.lastStatus(); {
				case errors.Is(last, fs.ErrNotExist):
					return fmt.Errorf("%w; and none has left a status", err)
				case last != nil:
					return fmt.Errorf("%w; its last status: %w", err, last)
				}
				fmt.Fprintf(a.err, "no daemon answers; this is the status of %s (%s)\n",
					clock(s.Written, a.zone), ago(time.Since(s.Written)))
				a.away = true
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
	return a.page().status(s)
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

// oneLine keeps text from outside from looking like several lines or columns of
// ours.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
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

// ago is how long something is over, for people.
func ago(d time.Duration) string {
	if d < 0 {
		return "in the future: the clock was set"
	}
	return span(d) + " ago"
}

// span is a duration for people, in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
