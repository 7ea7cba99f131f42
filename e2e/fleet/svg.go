// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math"
	"strings"
)

// Chart is one panel of a figure: bins of equal width drawn as steps.
type Chart struct {
	Title          string
	XLabel, YLabel string
	X0, X1         float64
	Y1             float64 // the top; the bottom is 0, or Y0 if it is above
	Y0             float64 // above 0: the scale is logarithmic
	XTicks, YTicks []float64
	Bands          []Band
	Lines          []Line
	Legend         float64 // position of the legend, as a part of the width
	LegendTop      float64 // and in pixels below the top
	Series         []Series
}

// Band is a part of the x axis with another background.
type Band struct{ X0, X1 float64 }

// Line is a horizontal line with its name.
type Line struct {
	Y    float64
	Name string
}

// Series are bins from X on.
type Series struct {
	Name, Color string
	X, Width    float64
	Y           []float64
}

// The dimensions of a panel, and colours that are readable on white and on black.
const (
	panelWidth, panelHeight = 330, 190
	left, right, top, under = 48, 12, 26, 36
	ink                     = "#7d8590"
)

// Colors are for series.
var colors = []string{"#3b82c4", "#d1703c", "#4c9a5b", "#9a6fc4"}

// SVG draws panels in rows with that many columns.
func SVG(columns int, charts []Chart) []byte {
	var b strings.Builder
	scale := 1.0
	if columns == 1 {
		scale = 2.4 // one panel per row
	}
	width := panelWidth * scale
	rows := (len(charts) + columns - 1) / columns
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" `+
		`font-family="sans-serif" font-size="10">`+"\n",
		width*float64(columns), rows*panelHeight)
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(%.0f %d)">`+"\n", float64(i%columns)*width, i/columns*panelHeight)
		c.draw(&b, width-left-right, panelHeight-top-under)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

func (c Chart) draw(b *strings.Builder, w, h float64) {
	x := func(v float64) float64 { return left + (v-c.X0)/(c.X1-c.X0)*w }
	y := func(v float64) float64 {
		if c.Y0 > 0 {
			v = math.Log(max(v, c.Y0)/c.Y0) / math.Log(c.Y1/c.Y0) * c.Y1
		}
		return top + h - v/c.Y1*h
	}
	for _, band := range c.Bands {
		fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%.1f" fill="%s" fill-opacity="0.2"/>`+"\n",
			x(band.X0), top, x(band.X1)-x(band.X0), h, ink)
	}
	text(b, left, top-10, "start", `font-weight="bold"`, c.Title)
	text(b, left+w, top+h+30, "end", "", c.XLabel)
	for _, v := range c.XTicks {
		line(b, x(v), top+h, x(v), top+h+4, "")
		text(b, x(v), top+h+15, "middle", "", number(v))
	}
	for _, v := range c.YTicks {
		line(b, left, y(v), left+w, y(v), `stroke-opacity="0.3"`)
		text(b, left-5, y(v)+3.5, "end", "", number(v))
	}
	if c.YLabel != "" {
		fmt.Fprintf(b, `<text transform="translate(12 %.1f) rotate(-90)" text-anchor="middle" fill="%s">%s</text>`+"\n",
			top+h/2, ink, c.YLabel)
	}
	line(b, left, top+h, left+w, top+h, "")
	for _, l := range c.Lines {
		line(b, left, y(l.Y), left+w, y(l.Y), `stroke-dasharray="4 3"`)
		text(b, left+4, y(l.Y)-3, "start", "", l.Name)
	}
	for i, s := range c.Series {
		var p strings.Builder
		for j, v := range s.Y {
			from := s.X + float64(j)*s.Width
			if from < c.X0 || from >= c.X1 {
				continue
			}
			verb := "V"
			if p.Len() == 0 {
				verb = fmt.Sprintf("M%.1f,", x(from))
			}
			fmt.Fprintf(&p, "%s%.1fH%.1f", verb, y(v), x(min(from+s.Width, c.X1)))
		}
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.3"/>`+"\n", p.String(), s.Color)
		if s.Name != "" {
			row := top + c.LegendTop + 10 + float64(i)*13
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="10" height="3" fill="%s"/>`+"\n", left+c.Legend*w, row-4, s.Color)
			text(b, left+c.Legend*w+15, row, "start", "", s.Name)
		}
	}
}

func line(b *strings.Builder, x0, y0, x1, y1 float64, more string) {
	fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" %s/>`+"\n", x0, y0, x1, y1, ink, more)
}

func text(b *strings.Builder, x, y float64, anchor, more, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" %s>%s</text>`+"\n", x, y, anchor, ink, more, s)
}

// number formats 0.046, 12 and 1,000.
func number(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%d,%03d", int(v)/1000, int(v)%1000)
	}
	if v >= 10 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}
