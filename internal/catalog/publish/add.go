// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Limits of a batch.
const (
	maxBatch = 200_000 // lines
	maxLine  = 4 << 10 // bytes
)

// Wanted is an image to add.
type Wanted struct {
	Line  int // of a batch, from 1; 0: an argument
	Text  string
	Image Image
	Set   string
}

// ParseBatch reads a batch: in each line REPOSITORY:TAG or REPOSITORY:TAG@DIGEST, and the name of
// a set, if it is in one. Lines that are empty or begin with # count for nothing. The error names
// all lines that are wrong.
func ParseBatch(r io.Reader) ([]Wanted, error) {
	var all []Wanted
	var wrong []Line
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	number := 0
	for lines.Scan() {
		number++
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		w := Wanted{Line: number, Text: outside.Text(words[0])}
		var err error
		if w.Image, err = ParseImage(words[0]); err == nil && len(words) > 1 {
			w.Set = words[1]
			if len(words) > 2 {
				err = fmt.Errorf("%s: want an image and a set, and nothing behind them", w.Text)
			}
		}
		if err != nil {
			wrong = append(wrong, Line{Number: number, Text: w.Text, Err: outside.Error(err)})
		}
		if all = append(all, w); len(all) > maxBatch {
			return nil, refuse(KindInput, "batch", "more than %d lines", maxBatch)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("batch: line %d: %w", number+1, err)
	}
	if len(wrong) > 0 {
		return nil, &BatchError{Lines: wrong}
	}
	return all, nil
}

// Added checks all of these images in their registries, and returns the changes that add them. The
// error names all that are wrong.
func (p *Publisher) Added(ctx context.Context, wanted []Wanted, on []ocispec.Platform) ([]catalog.Change, error) {
	changes, errs := make([]catalog.Change, len(wanted)), make([]error, len(wanted))
	var done atomic.Int64
	err := each(ctx, wanted, func(ctx context.Context, n int, w Wanted) error {
		r, err := p.Lookup(ctx, w.Image, on)
		r.Set = w.Set
		changes[n], errs[n] = catalog.Change{Image: w.Image.Repository, Release: r}, err
		p.step("checked %d of %d images: %s", done.Add(1), len(wanted), w.Image)
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	byTag := map[string]Wanted{}
	var wrong []Line
	for n, w := range wanted {
		if err := errs[n]; err != nil {
			wrong = append(wrong, Line{Number: w.Line, Text: w.Text, Err: err})
		} else if other, twice := byTag[w.Image.String()]; twice && other.Set != w.Set {
			err = refuse(KindInput, w.Image.String(), "given twice, in %s and in %s", setName(other.Set), setName(w.Set))
			wrong = append(wrong, Line{Number: w.Line, Text: w.Text, Err: err})
		}
		byTag[w.Image.String()] = w
	}
	switch {
	case len(wrong) == 0:
		return changes, nil
	case len(wanted) == 1:
		return nil, wrong[0].Err
	}
	return nil, &BatchError{Lines: wrong}
}
