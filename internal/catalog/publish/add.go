// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

// Limits of a batch.
const (
	maxBatch = 200_000 // lines
	maxLine  = 4 << 10 // bytes
	maxRead  = 1 << 20 // bytes of a line that is too long, to find those behind it
	maxShown = 200     // bytes of a line in an error
)

// Wanted is an image to add.
type Wanted struct {
	Line  int // of a batch, from 1; 0: an argument
	Text  string
	Image Image
	Set   string
	// Advisory is what the image is good for; nil: nothing is said.
	Advisory *catalog.Advisory
	Err      error // why it names no image; nil: it does
}

// ParseBatch reads a batch: in each line REPOSITORY:TAG or REPOSITORY:TAG@DIGEST, and the name of
// a set, if it is in one. Lines that are empty or begin with # count for nothing. The error names
// all lines that are wrong, and comes with the others.
func ParseBatch(r io.Reader) ([]Wanted, error) {
	var all []Wanted
	var wrong []Line
	lines := bufio.NewReaderSize(r, maxLine)
	for number := 1; ; number++ {
		text, isLong, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			break
		}
		if number > maxBatch {
			return nil, refuse(KindInput, "batch", "more than %d lines", maxBatch)
		}
		if errors.Is(err, errEndless) {
			return nil, refuse(KindInput, "batch", "line %d: the line has more than %d bytes", number, maxRead)
		}
		if err != nil {
			return nil, fmt.Errorf("batch: line %d: %w", number, err)
		}
		w, err := parseLine(text)
		if isLong {
			err = refuse(KindInput, outside.Line(text, maxShown), "the line has more than %d bytes", maxLine)
		}
		if w.Line = number; w.Text == "" && err == nil {
			continue
		}
		if err != nil {
			wrong = append(wrong, Line{Number: number, Text: w.Text, Err: outside.Error(err)})
		} else {
			all = append(all, w)
		}
	}
	if len(wrong) > 0 {
		return all, &BatchError{Lines: wrong}
	}
	return all, nil
}

// parseLine reads a line: an image, and perhaps a set. One without any has no text.
func parseLine(line string) (Wanted, error) {
	words := strings.Fields(strings.TrimPrefix(line, "\ufeff"))
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return Wanted{}, nil
	}
	w := Wanted{Text: outside.Line(words[0], maxShown)}
	image, err := ParseImage(words[0])
	switch w.Image = image; {
	case err != nil:
		return w, err
	case len(words) > 2:
		return w, refuse(KindInput, w.Text, "want an image and its set, and nothing behind them")
	case len(words) == 2:
		w.Set = words[1]
		if err := catalog.CheckSet(w.Set); err != nil {
			return w, &Error{Kind: KindInput, Object: w.Text, Text: "not the name of a set", Err: err}
		}
	}
	return w, nil
}

// errEndless: a line is so long that the batch most likely is no text.
var errEndless = errors.New("no line ends")

// readLine returns the next line without its end; of one that is too long, the beginning.
func readLine(r *bufio.Reader) (line string, isLong bool, err error) {
	part, isLong, err := r.ReadLine()
	line = string(part)
	for more, size := isLong, len(part); more && err == nil; size += len(part) {
		if size > maxRead {
			return "", true, errEndless
		}
		part, more, err = r.ReadLine()
	}
	if isLong && errors.Is(err, io.EOF) {
		err = nil // the end comes next
	}
	return line, isLong, err
}

// Added checks all of these images in their registries, and returns the changes that add them. The
// error names all that are wrong.
func (p *Publisher) Added(ctx context.Context, wanted []Wanted, on []ocispec.Platform) ([]catalog.Change, error) {
	changes, errs := make([]catalog.Change, len(wanted)), make([]error, len(wanted))
	var done atomic.Int64
	err := each(ctx, p.jobs, wanted, func(ctx context.Context, n int, w Wanted) error {
		if w.Err != nil {
			errs[n] = w.Err
			return nil //nolint:nilerr // one bad image hides no other
		}
		r, err := p.Lookup(ctx, w.Image, on)
		r.Set, r.Advisory = w.Set, w.Advisory
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
			err = refuse(KindInput, w.Image.String(), "given twice, in %s and in %s", ops.SetName(other.Set), ops.SetName(w.Set))
			wrong = append(wrong, Line{Number: w.Line, Text: w.Text, Err: err})
		}
		byTag[w.Image.String()] = w
	}
	slices.SortStableFunc(wrong, func(a, b Line) int { return a.Number - b.Number })
	return changes, wrongLines(wrong)
}
