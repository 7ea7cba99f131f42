// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/doctor"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
)

func (a *app) localRegistryCommand() *cobra.Command {
	return group("local-registry", "Let containerd pull images from a registry on this node",
		a.localRegistryEnableCommand(), a.localRegistryDisableCommand(), a.localRegistryShowCommand())
}

func (a *app) localRegistryEnableCommand() *cobra.Command {
	var gate, write bool
	cmd := &cobra.Command{
		Use:   "enable HOST...",
		Short: "Add the local registry to the hosts of a registry",
		Long: `enable adds the local registry of this node to the hosts.toml of each registry HOST. It
prints the change; --write writes it. All other hosts stay, in the same order, and
containerd reads the file at its next pull. The agent's lines are marked: you may edit the
rest of the file at any time.

As a fallback, containerd asks the local registry after all other hosts have failed: pods
start without the registry. With --gate, containerd asks the local registry first: pods
start with the approved digest, even if the tag has moved.

The agent remembers what was enabled, so that status, doctor and metrics report it when
another program overwrites the file.

Exit status: 0 shown or written, 1 failed, 2 invalid arguments, 3 already enabled,
4 refused: the agent's lines were edited, the order of hosts would change, another program
writes the file (for k3s or RKE2 enable prints the lines for registries.yaml, and without
--write exits with 0), or containerd does not read it.`,
		Example: `  image-update-agent local-registry enable registry.suse.com
  image-update-agent local-registry enable registry.suse.com --write
  image-update-agent local-registry enable registry.suse.com --gate --write`,
		Args: someArgs("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkRegistries(args); err != nil {
				return err
			}
			if err := a.compared(cmd.Context(), write); err != nil {
				return err
			}
			return a.change(cmd.Context(), args, write, func(
				r registryhost.Registries, host string,
			) (registryhost.Change, error) {
				at := localregistry.Fallback
				if gate {
					at = localregistry.Gate
				}
				return r.Enable(cmd.Context(), host, at)
			})
		},
	}
	cmd.Flags().BoolVar(&gate, "gate", false, "ask the local registry first instead of last")
	cmd.Flags().BoolVar(&write, "write", false, "write the file instead of printing the change")
	return a.withOutput(cmd)
}

func (a *app) localRegistryDisableCommand() *cobra.Command {
	var all, write bool
	cmd := &cobra.Command{
		Use:   "disable {HOST... | --all}",
		Short: "Remove the local registry from the hosts of a registry",
		Long: `disable removes the agent's lines from the hosts.toml of each registry HOST. The rest
of the file is as before enable, with your later edits. It prints the change; --write
writes it.

Exit status: 0 shown or written, 1 failed, 2 invalid arguments, 3 not enabled, 4 refused:
the agent's lines were edited, or the file was written by hand.`,
		Example: `  image-update-agent local-registry disable registry.suse.com --write
  image-update-agent local-registry disable --all --write`,
		Args:              namesOrAll("HOST", &all),
		ValidArgsFunction: a.completeLocalRegistries,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if all {
				args, err = a.localRegistries(cmd.Context())
			} else {
				err = checkRegistries(args)
			}
			if err != nil {
				return err
			}
			if len(args) == 0 && a.output != "json" {
				fmt.Fprintln(a.out, "the local registry is not enabled for any registry")
			}
			return a.change(cmd.Context(), args, write, func(
				r registryhost.Registries, host string,
			) (registryhost.Change, error) {
				return r.Disable(cmd.Context(), host)
			})
		},
	}
	allFlag(cmd, &all, "remove it from every registry")
	cmd.Flags().BoolVar(&write, "write", false, "write the file instead of printing the change")
	return a.withOutput(cmd)
}

func (a *app) localRegistryShowCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "show [HOST...]",
		Short: "Show the registries that use the local registry, and the tags that it serves",
		Long: `show lists the registries whose hosts.toml names the local registry, its position there,
and the tags that it serves with their digests; then the registries that have lost it,
with the reason and the remedy; and the registries of followed tags that do not use it.

Exit status: 0 a registry uses it, 1 the files cannot be read, 2 invalid arguments, 3 no
registry uses it.`,
		Example: `  image-update-agent local-registry show
  image-update-agent local-registry show registry.suse.com --output json | jq -r '.registries[].position'`,
		ValidArgsFunction: a.completeLocalRegistries,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.settings()
			if err != nil {
				return err
			}
			v, err := s.memory().Show(cmd.Context(), filepath.Join(s.StateDir, table.File), args...)
			if err != nil {
				return err
			}
			if err := a.show(v, func() error { return v.Write(a.page()) }); err != nil {
				return err
			}
			if v.IsOff() {
				return cli.Exit(exitNothing)
			}
			return nil
		},
	})
}

// checkRegistries checks all arguments before anything is read or written.
func checkRegistries(names []string) error {
	errs := []error{}
	for _, name := range names {
		errs = append(errs, registryhost.CheckRegistry(name))
	}
	return errors.Join(errs...)
}

// change shows what becomes of the hosts.toml files of registries, or writes it. One that is refused keeps no other
// from it.
func (a *app) change(
	ctx context.Context, names []string, write bool, of func(registryhost.Registries, string) (registryhost.Change, error),
) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	m, errs, nothing := s.memory(), []error{}, true
	if write {
		unlock, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
	}
	a.acts.Store(write)
	for _, name := range names {
		c, err := of(m.Registries, name)
		remembered := false
		if err == nil && write {
			remembered, err = m.CarryOut(c)
		}
		if made, is := errors.AsType[*registryhost.MadeOfError](err); is && !write && a.output != "json" {
			made.Print(a.out, a.err)
			nothing = false
			continue
		}
		if errs = append(errs, err); err != nil {
			continue
		}
		nothing = nothing && c.IsNone() && !remembered
		if a.output == "json" {
			errs = append(errs, a.encoder().Encode(c.View(write)))
		} else {
			c.Print(a.out, a.err, write)
		}
	}
	if err := errors.Join(errs...); err != nil || !nothing {
		return err
	}
	return cli.Exit(exitNothing)
}

// memory is what was enabled on this node.
func (s settings) memory() registryhost.Memory {
	all := registryhost.Registries{Dirs: s.Containerd.CertsD}
	if slices.Equal(all.Dirs, []string{s.platform.At(s.platform.CertsD)}) && s.platform.Registries != "" {
		all.Writer = &s.platform
	}
	return registryhost.Memory{Dir: s.StateDir, Registries: all}
}

// compared fails where the running containerd does not read the hosts.toml files that are about to be written, and
// notes what it cannot tell. If containerd does not answer, nothing is written.
func (a *app) compared(ctx context.Context, write bool) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	isCompared, err := s.readByContainerd(ctx)
	if !isCompared && (err == nil || !write) {
		note := errors.New("containerd is not running; `image-update-agent doctor` checks later that it reads the file")
		fmt.Fprintln(a.err, "note:", cmp.Or(err, note))
		return nil
	}
	return err
}

// readByContainerd returns a *registryhost.RefusedError if the running containerd does not read the hosts.toml files.
// Without a containerd there is nothing to compare with.
func (s settings) readByContainerd(ctx context.Context) (isCompared bool, err error) {
	if _, err := os.Lstat(s.Containerd.Socket); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	server, err := doctor.AskContainerd(ctx, s.Settings)
	if err != nil {
		return false, fmt.Errorf("cannot tell whether containerd reads the file: %w", err)
	}
	why := s.certsD.Ignored(server.Version, server.ConfigPath)
	if why == "" && server.ConfigPath != "" && !isSamePath(s.root, s.Containerd.CertsD, server.ConfigPath) {
		why = fmt.Sprintf("containerd runs with config_path %q: set containerd.certsD to the same path", server.ConfigPath)
	}
	if why != "" {
		files := strings.Join(s.Containerd.CertsD, ", ")
		return true, &registryhost.RefusedError{File: files, Reason: "containerd does not read it: " + why}
	}
	return true, nil
}

// isSamePath returns whether dirs, below root, are those of a config_path.
func isSamePath(root string, dirs []string, path string) bool {
	return slices.EqualFunc(dirs, filepath.SplitList(path), func(ours, theirs string) bool {
		return filepath.Clean(ours) == filepath.Clean(theirs) || filepath.Clean(ours) == filepath.Join(root, theirs)
	})
}

// localRegistries are the registries that have the local registry, and those for which it is remembered.
func (a *app) localRegistries(ctx context.Context) ([]string, error) {
	s, err := a.settings()
	if err != nil {
		return nil, err
	}
	m := s.memory()
	names, err := m.Registries.Names(ctx)
	wanted, unknown := m.Wanted()
	if unknown != nil && len(names) == 0 { // else disabling the others says it
		return nil, errors.Join(err, unknown)
	}
	for _, w := range wanted {
		names = append(names, w.Registry)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

func (a *app) completeLocalRegistries(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	names, _ := a.localRegistries(cmd.Context()) // what cannot be read is not offered
	return names, cobra.ShellCompDirectiveNoFileComp
}

// localRegistryFiles are the hosts.toml files that the daemon changes for a person. It implements localregistry.Files.
type localRegistryFiles struct{ settings }

func (f localRegistryFiles) Enable(ctx context.Context, registry string, at localregistry.Position) (bool, error) {
	if _, err := f.readByContainerd(ctx); err != nil {
		return false, err
	}
	return f.change(ctx, func(r registryhost.Registries) (registryhost.Change, error) {
		return r.Enable(ctx, registry, at)
	})
}

func (f localRegistryFiles) Disable(ctx context.Context, registry string) (bool, error) {
	return f.change(ctx, func(r registryhost.Registries) (registryhost.Change, error) {
		return r.Disable(ctx, registry)
	})
}

func (f localRegistryFiles) change(
	ctx context.Context, of func(registryhost.Registries) (registryhost.Change, error),
) (changed bool, err error) {
	m := f.memory()
	unlock, err := m.Lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	c, err := of(m.Registries)
	if err != nil {
		return false, err
	}
	remembered, err := m.CarryOut(c)
	if errors.Is(err, syscall.EROFS) {
		err = fmt.Errorf("%w: run systemctl restart image-update-agent if the directory is newer than the daemon; otherwise "+
			"add ReadWritePaths=%s below [Service] with systemctl edit image-update-agent", err,
			strings.Join(m.Registries.Dirs, " "))
	}
	return err == nil && (remembered || !c.IsNone()), err
}
