// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/registry/layout"
)

// errApproved: an apply needs the registry, which a layout cannot stand in for.
var errApproved = errors.New("an approved apply is not finished, and needs the registry")

// sourceFlag adds --source to a verb.
func sourceFlag(cmd *cobra.Command, source *string) {
	cmd.Flags().StringVar(source, "source", "",
		"read images from an OCI layout instead of the registries: oci:DIR or oci:FILE.tar")
}

// openSource opens what --source names; nil where it names nothing.
func openSource(source string, log *slog.Logger) (*layout.Layout, error) {
	if source == "" {
		return nil, nil //nolint:nilnil // none is what was asked for
	}
	path, ok := strings.CutPrefix(source, "oci:")
	if !ok || path == "" {
		return nil, cli.Usage(fmt.Errorf("--source %q: want oci:DIR or oci:FILE.tar", source))
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("--source %q: %w", source, err)
	}
	l, err := layout.Open(path, layout.Options{Log: log})
	if err != nil {
		return nil, sourceError{fmt.Errorf("--source: %w", err)}
	}
	return l, nil
}

// sourceError is a layout that cannot be used: the argument was wrong, or what
// it names.
type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }

// wireFrom builds an agent for one plan or cycle, from a source or, where that
// is empty, the registries.
func (a *app) wireFrom(ctx context.Context, s settings, source string) (*wiring, error) {
	log := quietLog()
	from, err := openSource(source, log)
	if err != nil {
		return nil, err
	}
	w, err := a.wireTo(ctx, s, log, from)
	if err != nil && from != nil {
		return nil, errors.Join(err, from.Close())
	}
	return w, err
}

// mayCycle refuses a layout while an approval stands: a layout does not show whether
// kubelet can pull.
func (w *wiring) mayCycle(ctx context.Context) error {
	if w.layout == nil {
		return nil
	}
	record, err := w.agent.Recorder.Load(ctx)
	if err != nil {
		return err
	}
	if len(record.Approved) > 0 {
		return fmt.Errorf("%w: %w", release.ErrHeld, errApproved)
	}
	return nil
}

func isSource(err error) bool {
	_, ok := errors.AsType[sourceError](err)
	return ok
}

// sourceHint says what to do about a source that cannot be used.
func sourceHint(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is the removable media mounted? The path ends with the directory or the tar file, without :NAME as in skopeo"
	case errors.Is(err, layout.ErrCompressed):
		return "decompress the file first (gunzip, unxz, zstd -d)"
	case errors.Is(err, layout.ErrUnnamed):
		return "copy with the full name: skopeo copy --all docker://REPOSITORY:TAG oci:DIR:REPOSITORY:TAG"
	case errors.Is(err, layout.ErrNotLayout):
		return "it needs oci-layout, index.json and blobs/, as `skopeo copy --all docker://REPOSITORY:TAG " +
			"oci:DIR:REPOSITORY:TAG` writes them"
	default:
		return "copy the layout again: its content is damaged"
	}
}
