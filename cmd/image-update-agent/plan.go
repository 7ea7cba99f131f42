// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/node/state"
	"github.com/kubic-project/image-update-agent/internal/registry/layout"
	"github.com/kubic-project/image-update-agent/manifests"
)

func (a *app) planCommand() *cobra.Command {
	var offline, diff bool
	var src string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what the next cycle would do, and what blocks the rest",
		Long: `plan looks at the node and asks the registries, as the next cycle will, and shows the
steps that would follow, the host that answered, and each newer tag that a rule refuses,
with the rule. It changes nothing.`,
		Example: `  image-update-agent plan
  image-update-agent plan --offline          use the last answers of the registries
  image-update-agent plan --offline --diff   also print the change of each pod manifest
  image-update-agent plan --source oci:/media/usb/images`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if offline && src != "" {
				return cli.Usage(errors.New("image-update-agent plan: give --offline or --source, not both"))
			}
			settings, err := a.settings()
			if err != nil {
				return err
			}
			w, err := a.wireFrom(cmd.Context(), settings, src)
			if err != nil {
				return err
			}
			defer w.close()
			w.agent.Recorder = state.NewReader(settings.StateDir)
			poll := source.PollAll
			if offline {
				poll = source.PollNone
			}
			plan, err := w.agent.Plan(cmd.Context(), poll)
			if err != nil {
				return err
			}
			v := statuspage.ViewOf(plan)
			outside.Hide(&v)
			if diff {
				if err := a.addDiffs(settings, plan, v); err != nil {
					return err
				}
			}
			return a.printPlan(v)
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "use the last answers of the registries, and send no request")
	cmd.Flags().BoolVar(&diff, "diff", false, "also print the change of each pod manifest line by line")
	sourceFlag(cmd, &src)
	return a.withOutput(cmd)
}

// addDiffs adds what becomes of each pod manifest to the view of a plan.
func (a *app) addDiffs(s settings, p plan.Plan, v statuspage.PlanView) error {
	for n, pod := range p.Pods {
		if pod.Wanted == nil {
			continue
		}
		var err error
		if v.Pods[n].Diff, err = a.diff(s, pod.File, pod.Wanted); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printPlan(v statuspage.PlanView) error {
	return a.show(v, func() error { return v.Write(a.out, a.zone) })
}

// diff compares a pod manifest with the wanted one, line by line; empty: they are the same. A file that is not there is
// empty.
func (a *app) diff(s settings, file string, wanted []byte) (string, error) {
	path := filepath.Join(s.PodManifests, file)
	disk, err := a.readFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return manifests.Diff(path, path+" (wanted)", disk, wanted), nil
}

// waitingDiffs are the differences of the rendered files that wait for an approval of
// the named images, or of all, by pod manifest.
func (a *app) waitingDiffs(s settings, status status.Status, names []string) (map[string]string, error) {
	diffs := map[string]string{}
	for _, pod := range status.PodManifests {
		isNamed := func(name string) bool { return isOf(status, pod, name) }
		if !pod.Waiting || len(names) > 0 && !slices.ContainsFunc(names, isNamed) {
			continue
		}
		wanted, err := a.readFile(filepath.Join(s.Rendered, pod.PodManifest))
		if errors.Is(err, fs.ErrNotExist) {
			continue // not staged yet
		}
		if err == nil {
			diffs[pod.PodManifest], err = a.diff(s, pod.PodManifest, wanted)
		}
		if err != nil {
			return nil, err
		}
	}
	return diffs, nil
}

// isOf reports whether a person's name of an image, or of a file, is that of a pod manifest.
func isOf(s status.Status, pod status.PodStatus, name string) bool {
	return pod.PodManifest == name || slices.ContainsFunc(s.Images, func(i status.ImageStatus) bool {
		return i.PodManifest == pod.PodManifest && plan.IsRepository(i.Image, name)
	})
}

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
	w, err := a.wire(ctx, s, log, from)
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
