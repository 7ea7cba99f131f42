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

// Picture writes a picture of the page, to the directory that IUA_PICTURES names; without it, it does nothing.
func (t *Tab) Picture(name string) {
	t.tb.Helper()
	dir := os.Getenv("IUA_PICTURES")
	if dir == "" {
		return
	}
	data, err := chromedp.Run(t.ctx, chromedp.FullScreenshot(100))
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

// smaller draws a PNG with its 64 most frequent colours: a page has fewer, but for the edges of letters.
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
	palette := color.Palette(colors[:min(len(colors), 64)])
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

func key(c color.Color) uint64 {
	r, g, b, a := c.RGBA()
	return uint64(r)<<48 | uint64(g)<<32 | uint64(b)<<16 | uint64(a)
}
