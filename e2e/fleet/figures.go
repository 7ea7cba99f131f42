// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Sizes returns the sizes of the fleets.
func Sizes() []int { return []int{100, 1_000, 10_000} }

// Page is the file in docs/dev that shows the figures.
const Page = "fleet-figures.md"

// Document is the part of docs/dev/fleet-figures.md: the figures by file name, and the tables between its marks.
type Document struct {
	Figures map[string][]byte
	Tables  string
}

// Make simulates everything.
func Make() Document {
	var results []Result
	for _, s := range Scenarios() {
		for _, nodes := range Sizes() {
			results = append(results, Judge(nodes, Slots, s))
		}
	}
	peers := judgePeers()
	var loads []Load
	for _, s := range Stagings() {
		loads = append(loads, Stage(s))
	}
	return Document{
		Figures: map[string][]byte{
			"fleet.svg":         drawFleet(results),
			"fleet-peers.svg":   drawPeers(peers),
			"fleet-staging.svg": drawStaging(loads),
			"fleet-waves.svg":   drawWaves(Waves()),
			"fleet-stands.svg":  drawStanding(Waves()[0]),
		},
		Tables: fleetTable(results) + "\n" + peerTable(peers) + "\n" + stagingTable(loads) + "\n" + waveTable(Waves()),
	}
}

// drawFleet has a row for each scenario and a column for each size.
func drawFleet(results []Result) []byte {
	var charts []Chart
	for i, r := range results {
		s, mean := r.Scenario, Mean(r.Nodes)
		curve := Curve(r.Polls, s.Shown, r.Bin)
		c := Chart{
			Title: fmt.Sprintf("%s nodes: %s", number(float64(r.Nodes)), s.Name),
			X0:    s.Shown.From.Hours(), X1: s.Shown.To.Hours(), Y1: max(4*mean, slices.Max(curve)),
			XTicks: hours(s.Shown), YTicks: []float64{0, mean, 2 * mean, 3 * mean},
			Series: []Series{{Color: colors[0], X: s.Shown.From.Hours(), Width: r.Bin.Hours(), Y: curve}},
		}
		for _, band := range []Span{s.Cut, s.Away} {
			if band.To > 0 {
				c.Bands = append(c.Bands, Band{band.From.Hours(), band.To.Hours()})
			}
		}
		if i%len(Sizes()) == 0 {
			c.YLabel = "requests / s"
		}
		if i >= len(results)-len(Sizes()) {
			c.XLabel = "hours"
		}
		charts = append(charts, c)
	}
	return SVG(len(Sizes()), charts)
}

// hours returns about seven whole hours of a span.
func hours(s Span) (ticks []float64) {
	step := 2.0
	for (s.To-s.From).Hours()/step > 8 {
		step *= 2
		if step == 8 {
			step = 12
		}
	}
	for h := math.Ceil(s.From.Hours()/step) * step; h <= s.To.Hours(); h += step {
		ticks = append(ticks, h)
	}
	return ticks
}

// fleetTable has a row for each scenario; results are in the order of scenarios,
// and of sizes within.
func fleetTable(results []Result) string {
	var b strings.Builder
	b.WriteString("| what happens | peak / mean, 10,000 nodes | peak minute, requests/s: 100 nodes | 1,000 | 10,000 |\n" +
		"|---|---|---|---|---|\n")
	for row := range slices.Chunk(results, len(Sizes())) {
		fmt.Fprintf(&b, "| %s | %.2f |", row[0].Scenario.Name, row[len(row)-1].Ratio)
		for _, r := range row {
			fmt.Fprintf(&b, " %.1f |", r.Minute)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// peer is a comparable program's pace.
type peer struct {
	name string
	pace Pace
}

func peers() []peer {
	return []peer{
		{"this agent: a fixed slot", Slots},
		{"timer with 900 s of delay (podman)", Timer},
		{"at the start, then + 10 % (Zincati)", TenPercent},
		{"at the start, then by interval", AtStart},
	}
}

func judgePeers() []Result {
	var results []Result
	for _, p := range peers() {
		results = append(results, Judge(10_000, p.pace, powerCut()))
	}
	return results
}

func powerCut() Scenario {
	i := slices.IndexFunc(Scenarios(), func(s Scenario) bool { return s.Cut.To > 0 })
	return Scenarios()[i]
}

func drawPeers(results []Result) []byte {
	c := Chart{
		Title: "10,000 nodes: power cut of 1 h, then all start in the same second", XLabel: "hours", YLabel: "requests / s",
		X0: 10, X1: 28, Y0: 1, Y1: 100_000, XTicks: []float64{10, 12, 14, 16, 18, 20, 22, 24, 26, 28},
		YTicks: []float64{1, 10, 100, 1000, 10_000}, Bands: []Band{{11.5, 12.5}},
		Lines: []Line{{Y: 300, Name: "about what one docker-registry answers (BenchmarkCapacity)"}}, Legend: 0.45,
	}
	span := Span{10 * time.Hour, 28 * time.Hour}
	for i, p := range peers() {
		s := powerCut()
		s.Shown = span
		polls := Simulate(results[i].Nodes, p.pace, s)
		c.Series = append(c.Series, Series{
			Name: p.name, Color: colors[i],
			X: span.From.Hours(), Width: minBin.Hours(), Y: Curve(polls, span, minBin),
		})
	}
	return SVG(1, []Chart{c})
}

func peerTable(results []Result) string {
	var b strings.Builder
	b.WriteString("| 10,000 nodes after a power cut | peak / mean | peak minute, requests/s |\n|---|---|---|\n")
	for i, p := range peers() {
		fmt.Fprintf(&b, "| %s | %.1f | %s |\n", p.name, results[i].Ratio, number(results[i].Minute))
	}
	return b.String()
}

func drawStaging(loads []Load) []byte {
	c := Chart{
		Title:  "10,000 nodes stage a rebuild of 200 MB from a registry behind 1 Gbit/s",
		XLabel: "hours after publication", YLabel: "MB / s",
		X1: 14, Y1: 160, Legend: 0.7,
		XTicks: []float64{0, 2, 4, 6, 8, 10, 12, 14}, YTicks: []float64{0, 25, 50, 75, 100, 125},
	}
	for i, l := range loads {
		s := Series{Name: l.Staging.Name, Color: colors[i], Width: loadBin.Hours()}
		for _, v := range l.Sent {
			s.Y = append(s.Y, v/1e6)
		}
		c.Series = append(c.Series, s)
	}
	return SVG(1, []Chart{c})
}

func stagingTable(loads []Load) string {
	var b strings.Builder
	b.WriteString("| 10,000 nodes, 200 MB each | wanted at the peak | a pull takes, median | longest | " +
		"the last has it after |\n" +
		"|---|---|---|---|---|\n")
	for _, l := range loads {
		fmt.Fprintf(&b, "| %s | %.0f MB/s of 125 | %s | %s | %s |\n",
			l.Staging.Name, l.Wanted/1e6, short(l.Median), short(l.Longest), short(l.End))
	}
	return b.String()
}

// short formats 1.6s, 10m, 4.4h.
func short(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return fmt.Sprintf("%.3g h", d.Hours())
	case d >= time.Minute:
		return fmt.Sprintf("%.3g min", d.Minutes())
	default:
		return fmt.Sprintf("%.2g s", d.Seconds())
	}
}

// The marks around the tables in docs/dev/fleet-figures.md.
const (
	begin = "<!-- made by e2e/cmd/fleet: begin -->\n"
	end   = "<!-- made by e2e/cmd/fleet: end -->\n"
)

// Renew replaces the tables between the marks of the page.
func (d Document) Renew(page string) (string, error) {
	before, rest, ok := strings.Cut(page, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("no marks %q and %q", begin, end)
	}
	return before + begin + "\n" + d.Tables + "\n" + end + after, nil
}
