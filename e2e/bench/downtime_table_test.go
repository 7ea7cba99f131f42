// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// print writes the table, and below it the results for the goals of docs/dev/performance.md.
func (d *downtimes) print(out io.Writer) {
	fmt.Fprintf(out, "\nDowntime, containerd %s: seconds from the last old answer to the first new one. "+
		"Requests and MB (10^6 bytes) are the most in one change, while the pod was down.\n\n", d.server)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "way\tn\tmedian\tleast\tmost\tHEAD by containerd\tby the agent\tother requests\tlayers MB\tall")
	for _, way := range d.ways() {
		rows := d.of(way)
		least, median, most := spread(rows, down)
		fmt.Fprintf(table, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\t%.0f\t%.1f\t%s\n", way, len(rows), median, least, most,
			worst(rows, heads(story.CriAgent)), worst(rows, heads(story.OwnAgent)), worst(rows, others), worst(rows, layers),
			list(rows, down))
	}
	_ = table.Flush() // to a terminal or a log file
	fmt.Fprintln(out)
	for _, way := range d.ways() {
		d.goals(out, way)
	}
}

func (d *downtimes) goals(out io.Writer, way string) {
	say := func(what string, figure, goal float64) {
		verdict := "missed"
		if figure <= goal {
			verdict = "met"
		}
		fmt.Fprintf(out, "%s: %s: %.2f, at most %.1f: %s\n", way, what, figure, goal, verdict)
	}
	rows := d.of(way)
	_, median, most := spread(rows, down)
	switch way {
	case wayRebuild:
		say("median", median, 1.0)
		say("worst", most, 2.5)
	case wayRevision:
		say("median", median, 2.5)
	case wayShortly, wayLong:
		say("after the registry's return, worst of "+list(rows, late), worst(rows, late), 3)
	}
	if way == wayRebuild || way == wayRevision {
		say("HEAD by containerd while down", worst(rows, heads(story.CriAgent)), 1)
		say("other requests while down", worst(rows, others), 0)
	}
}

func down(m downtime) float64 { return m.Down().Seconds() }

// late returns how long the pod was down after its registry was back; negative if it was up before.
func late(m downtime) float64 { return m.First.Sub(m.up).Seconds() }

// heads counts a client's HEAD requests.
func heads(client string) func(downtime) float64 {
	return func(m downtime) float64 { return float64(m.asked.Of(client).Count(http.MethodHead, node.Manifest)) }
}

func others(m downtime) float64 { return float64(len(m.asked)) - heads("")(m) }

func layers(m downtime) float64 { return float64(m.asked.Bytes(node.Blob)) / 1e6 }

func worst(rows []downtime, of func(downtime) float64) float64 {
	_, _, most := spread(rows, of)
	return most
}

// ways returns the ways in order of measurement.
func (d *downtimes) ways() (ways []string) {
	for _, m := range d.all {
		if !slices.Contains(ways, m.way) {
			ways = append(ways, m.way)
		}
	}
	return ways
}

func (d *downtimes) of(way string) []downtime {
	return slices.DeleteFunc(slices.Clone(d.all), func(m downtime) bool { return m.way != way })
}

// list returns all figures in order of measurement.
func list(rows []downtime, of func(downtime) float64) string {
	var figures []string
	for _, m := range rows {
		figures = append(figures, fmt.Sprintf("%.2f", of(m)))
	}
	return strings.Join(figures, " ")
}
