// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// print writes two tables: the usage of each way, medians with minimum and maximum, and ratios within rounds.
func (p *pulls) print(out io.Writer, pairs int) {
	fmt.Fprintf(out, "\nPulls: medians of %d rounds (least-most); MB is 10^6 bytes\n\n", pairs)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "server\timages\tby\twall s\tcpu s\tof it containerd\tpeak MB\tcontainerd peak MB\trequests\tlayers MB")
	for _, key := range p.keys() {
		rows := p.of(key)
		figure := func(of func(pulled) float64) string {
			low, mid, high := spread(rows, of)
			return fmt.Sprintf("%.2f (%.2f-%.2f)", mid, low, high)
		}
		whole := func(of func(pulled) float64) string {
			low, mid, high := spread(rows, of)
			return fmt.Sprintf("%.0f (%.0f-%.0f)", mid, low, high)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", key.server, key.work, key.way,
			figure(wall), figure(cpuOf),
			figure(func(m pulled) float64 { return m.theirs.Seconds() }),
			whole(func(m pulled) float64 { return float64(m.rss) / 1e6 }),
			whole(func(m pulled) float64 { return float64(m.peak) / 1e6 }),
			whole(func(m pulled) float64 { return float64(m.requests) }),
			whole(func(m pulled) float64 { return float64(m.bytes) / 1e6 }))
	}
	_ = table.Flush() // to a terminal or a file of logs
	fmt.Fprintf(out, "\nRatios within a round: median (least-most) of %d, each\n\n", pairs)
	table = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range comparisons(p.keys()) {
		p.compare(table, r)
	}
	_ = table.Flush() // to a terminal or a file of logs
	fmt.Fprint(out, "\nGoals\n\n")
	for _, k := range p.keys() {
		p.goals(out, k)
	}
}

// goals prints the goals of docs/dev/performance.md, each with the figure of this series.
func (p *pulls) goals(out io.Writer, k pullKey) {
	say := func(what string, figure, goal float64) {
		verdict := "missed"
		if figure <= goal {
			verdict = "met"
		}
		fmt.Fprintf(out, "%s: %s: %.3f, at most %.2f: %s\n", k, what, figure, goal, verdict)
	}
	plain, _, tuned := strings.Cut(k.server, " ")
	kind, _, _ := strings.Cut(k.work, " ")
	cri := pullKey{plain, k.work, criWay.name}
	switch {
	case k.way == feltWay && kind == "large":
		_, mid, _ := spread(p.ratios(comparison{k, pullKey{k.server, k.work, criWay.name}}, wall), self)
		say("of the wall time without staging", mid, 1.0/50)
	case k.way == agentWay.name && slices.Contains(p.keys(), cri):
		_, mid, _ := spread(p.ratios(comparison{k, cri}, wall), self)
		goal := map[string]float64{"large": 1.10, "set": 0.70}[kind]
		if kind == "large" && (tuned || plain == string(node.Containerd2)) {
			goal = 0.60
		}
		say("wall by that of CRI on the plain server", mid, goal)
		fallthrough
	case k.way == daemonWay.name:
		_, _, most := spread(p.of(k), func(m pulled) float64 { return float64(m.rss) / 1e6 })
		say("peak MB, at most", most, 40)
	}
}

func wall(m pulled) float64 { return m.wall.Seconds() }

func cpuOf(m pulled) float64 { return (m.own + m.theirs).Seconds() }

func self(v float64) float64 { return v }

// ratios returns the ratios by round.
func (p *pulls) ratios(r comparison, of func(pulled) float64) (ratios []float64) {
	bs := p.of(r.b)
	for i, a := range p.of(r.a) {
		ratios = append(ratios, of(a)/of(bs[i]))
	}
	return ratios
}

// pullKey identifies the pulls of all rounds.
type pullKey struct{ server, work, way string }

func (k pullKey) String() string { return k.server + " " + k.work + " " + k.way }

// keys returns the keys in the order of the first round.
func (p *pulls) keys() (keys []pullKey) {
	for _, m := range p.all {
		if k := (pullKey{m.server, m.work, m.way}); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// of returns the pulls of all rounds with a key.
func (p *pulls) of(k pullKey) (found []pulled) {
	for _, m := range p.all {
		if (pullKey{m.server, m.work, m.way}) == k {
			found = append(found, m)
		}
	}
	return found
}

// comparison compares two pulls of the same round.
type comparison struct{ a, b pullKey }

// comparisons returns every way compared with CRI, the agent with the others, and every server with its plain version,
// for CRI and the agent and for the agent with the plain server's CRI.
func comparisons(keys []pullKey) (all []comparison) {
	there := func(a, b pullKey) {
		if a != b && slices.Contains(keys, b) {
			all = append(all, comparison{a, b})
		}
	}
	for _, k := range keys {
		there(k, pullKey{k.server, k.work, criWay.name})
		if k.way == agentWay.name {
			there(k, pullKey{k.server, k.work, ctrWay.name})
			there(k, pullKey{k.server, k.work, floorWay.name})
		}
		plain, _, _ := strings.Cut(k.server, " ")
		if plain != k.server && k.way != feltWay {
			there(k, pullKey{plain, k.work, k.way})
			if k.way == agentWay.name {
				there(k, pullKey{plain, k.work, criWay.name})
			}
		}
	}
	return all
}

// compare prints ratios of wall time and CPU, round by round.
func (p *pulls) compare(out io.Writer, r comparison) {
	for i, of := range []func(pulled) float64{wall, cpuOf} {
		name, ratios := [...]string{"wall", "cpu"}[i], p.ratios(r, of)
		low, mid, high := spread(ratios, self)
		fmt.Fprintf(out, "%s / %s\t%s\t%.3f\t(%.3f-%.3f)\t%.3f\n", r.a, r.b, name, mid, low, high, ratios)
	}
}

// spread returns the minimum, the median and the maximum.
func spread[T any](all []T, of func(T) float64) (low, mid, high float64) {
	var values []float64
	for _, one := range all {
		values = append(values, of(one))
	}
	slices.Sort(values)
	n := len(values)
	return values[0], (values[(n-1)/2] + values[n/2]) / 2, values[n-1]
}
