// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"

	"github.com/chromedp/chromedp"
)

// Picture writes a picture of the page, or of the window while a dialog covers it, to the directory that IUA_PICTURES
// names; without it, it does nothing.
func (t *Tab) Picture(name string) {
	t.tb.Helper()
	dir := os.Getenv("IUA_PICTURES")
	if dir == "" {
		return
	}
	shot := chromedp.FullScreenshot(100)
	if Eval[bool](t, "document.querySelector('dialog[open]') !== null") {
		shot = chromedp.CaptureScreenshot() // the dark behind a dialog ends with the window
	}
	data, err := chromedp.Run(t.ctx, shot)
	if err == nil {
		data, err = smaller(data)
	}
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), data, 0o644)
	}
	if err != nil {
		t.tb.Fatalf("browser: picture: %v", err)
	}
}

// smaller draws a PNG with at most 64 colours: the 48 most frequent, then others that the eye tells from them, such as
// the red of a small icon. A page has fewer, but for the edges of letters.
func smaller(data []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	counts := map[color.Color]int{}
	bounds := from.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[from.At(x, y)]++
		}
	}
	var colors []color.Color
	for c := range counts {
		colors = append(colors, c)
	}
	slices.SortFunc(colors, func(a, b color.Color) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(key(a), key(b)))
	})
	const frequent = 48
	palette := color.Palette(slices.Clone(colors[:min(len(colors), frequent)]))
	for _, c := range colors[len(palette):] {
		if len(palette) < 64 && !slices.ContainsFunc(palette, func(has color.Color) bool { return alike(has, c) }) {
			palette = append(palette, c)
		}
	}
	nearest := map[color.Color]uint8{}
	for _, c := range colors {
		nearest[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			to.SetColorIndex(x, y, nearest[from.At(x, y)])
		}
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err = encoder.Encode(&out, to)
	return out.Bytes(), err
}

// alike reports whether two colours differ by less than 32 of 255 in each channel.
func alike(a, b color.Color) bool {
	near := func(a, b uint32) bool { return max(a, b)-min(a, b) < 32<<8 }
	r, g, blue, _ := a.RGBA()
	otherR, otherG, otherBlue, _ := b.RGBA()
	return near(r, otherR) && near(g, otherG) && near(blue, otherBlue)
}

func key(c color.Color) uint64 {
	r, g, b, a := c.RGBA()
	return uint64(r)<<48 | uint64(g)<<32 | uint64(b)<<16 | uint64(a)
}
