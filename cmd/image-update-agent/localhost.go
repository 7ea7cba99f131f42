// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/internal/doctor"
	"github.com/kubic-project/image-update-agent/internal/localhost"
)

func (a *app) localhostCommand() *cobra.Command {
	return group("localhost", "Have containerd ask this node itself for images of a registry",
		a.localhostEnableCommand(), a.localhostDisableCommand(), a.localhostShowCommand(), a.localhostServeCommand())
}

func (a *app) localhostEnableCommand() *cobra.Command {
	var gate, write bool
	cmd := &cobra.Command{
		Use:   "enable HOST...",
		Short: "Put the node's own host among the hosts of a registry",
		Long: `enable shows what the hosts.toml of each registry HOST becomes with the node's own
host in it; --write writes it. All other hosts stay as they are, in their order,
and containerd reads the file with its next pull. The file that was there is kept
beside it, as hosts.toml.before-own-host.

As fallback the own host is asked where no other host answers: pods start without
the registry. With --gate it is asked first: pods start with the approved digest,
whatever the tag names meanwhile.

What is enabled is remembered, so that status, doctor and metrics say when another
program has written the file anew.

Exit status: 0 shown or written, 1 it did not work, 2 wrong arguments, 3 it is so
already, 4 the hosts would not stay the same, the file was edited, or the running
containerd does not read it.`,
		Example: `  image-update-agent localhost enable registry.suse.com
  image-update-agent localhost enable registry.suse.com --write
  image-update-agent localhost enable registry.suse.com --gate --write`,
		Args: someArgs(1, "HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.compared(cmd.Context(), write); err != nil {
				return err
			}
			return a.change(cmd.Context(), args, write, func(r localhost.Registries, host string) (localhost.Change, error) {
				if gate {
					return r.Enable(cmd.Context(), host, ownhost.Gate)
				}
				return r.Enable(cmd.Context(), host, ownhost.Fallback)
			})
		},
	}
	cmd.Flags().BoolVar(&gate, "gate", false, "ask the own host first, and not last")
	cmd.Flags().BoolVar(&write, "write", false, "write the file")
	return a.withOutput(cmd)
}

func (a *app) localhostDisableCommand() *cobra.Command {
	var all, write bool
	cmd := &cobra.Command{
		Use:   "disable {HOST... | --all}",
		Short: "Take the node's own host out again, and restore the file before it",
		Long: `disable shows what the hosts.toml of each registry HOST becomes without the node's
own host; --write writes it. The file that was there before enable is restored to
the byte. One that was edited since is left alone.

Exit status: 0 shown or written, 1 it did not work, 2 wrong arguments, 3 there is
nothing to take out, 4 a file was edited, or a person has written it.`,
		Example: `  image-update-agent localhost disable registry.suse.com --write
  image-update-agent localhost disable --all --write`,
		Args:              namesOrAll("HOST", &all),
		ValidArgsFunction: a.completeOwnHosts,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if all {
				args, err = a.ownHosts(cmd.Context())
			}
			if err != nil {
				return err
			}
			return a.change(cmd.Context(), args, write, func(r localhost.Registries, host string) (localhost.Change, error) {
				return r.Disable(cmd.Context(), host)
			})
		},
	}
	allFlag(cmd, &all, "take it out of every registry")
	cmd.Flags().BoolVar(&write, "write", false, "write the file")
	return a.withOutput(cmd)
}

func (a *app) localhostShowCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "show [HOST...]",
		Short: "Show which registries have the node's own host, and what it answers",
		Long: `show lists the registries whose hosts.toml has the node's own host, where it stands
there, and the tags that it answers with their digests; the registries for which
it was enabled and that have lost it, with why and what to do; and the registries
of followed tags that do not have it.

Exit status: 0 a registry has it, 1 it cannot be read, 2 wrong arguments, 3 none
has it.`,
		Example: `  image-update-agent localhost show
  image-update-agent localhost show registry.suse.com --output json | jq -r '.registries[].position'`,
		ValidArgsFunction: a.completeOwnHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.settings()
			if err != nil {
				return err
			}
			v, err := s.memory().Show(cmd.Context(), filepath.Join(s.StateDir, localhost.TableFile), args...)
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

// localhostServeCommand is for the unit, and hidden. It reads no configuration: it has to answer at once.
func (a *app) localhostServeCommand() *cobra.Command {
	var table string
	cmd := &cobra.Command{
		Use: "serve", Short: "Answer the clients of the socket on standard input", Hidden: true, Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, ok := a.files.in.(*os.File)
			if !ok {
				return errors.New("standard input is no socket")
			}
			s := localhost.NewServer(table, os.Getenv("RUNTIME_DIRECTORY"), logger(a.err, config.Log{}))
			return s.ServeFile(cmd.Context(), in)
		},
	}
	cmd.Flags().StringVar(&table, "table", "/var/lib/image-update-agent/"+localhost.TableFile, "what it answers")
	return cmd
}

// change shows what becomes of the hosts.toml files of registries, or writes it. One that is refused keeps no other
// from it.
func (a *app) change(
	ctx context.Context, names []string, write bool, of func(localhost.Registries, string) (localhost.Change, error),
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
			remembered, err = carryOut(m, c)
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

// carryOut writes a change, and remembers or forgets that it is wanted. A crash in between leaves an own host that is
// remembered and not there: status says so.
func carryOut(m localhost.Memory, c localhost.Change) (remembered bool, err error) {
	if c.Position == ownhost.Off {
		if err := c.Write(); err != nil {
			return false, err
		}
		return m.Disabled(c.Registry)
	}
	remembered, err = m.Enabled(ownhost.Wanted{Registry: c.Registry, Position: c.Position, File: c.File})
	if err != nil {
		return false, err
	}
	return remembered, c.Write()
}

// memory is what was enabled on this node.
func (s settings) memory() localhost.Memory {
	return localhost.Memory{Dir: s.StateDir, Registries: localhost.Registries{Dirs: s.Containerd.CertsD}}
}

// compared fails where the running containerd does not read the hosts.toml files that are about to be written. Without
// a containerd there is nothing to compare with. If it does not answer, nothing is written.
func (a *app) compared(ctx context.Context, write bool) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	if _, err := os.Lstat(s.Containerd.Socket); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(a.err, "note: containerd does not run here; `doctor` tells later whether it reads the file")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	server, err := doctor.AskContainerd(ctx, s.Settings)
	switch {
	case err != nil && write:
		return fmt.Errorf("whether containerd reads the file is not known: %w", err)
	case err != nil:
		fmt.Fprintf(a.err, "note: whether containerd reads the file is not known: %v\n", err)
		return nil
	}
	why := s.certsD.Ignored(server.Version, server.ConfigPath)
	if why == "" && server.ConfigPath != "" && !isSamePath(s.root, s.Containerd.CertsD, server.ConfigPath) {
		why = fmt.Sprintf("containerd runs with config_path %q: set containerd.certsD to it", server.ConfigPath)
	}
	if why != "" {
		files := strings.Join(s.Containerd.CertsD, ", ")
		return &localhost.RefusedError{File: files, Reason: "containerd does not read it: " + why}
	}
	return nil
}

// isSamePath returns whether dirs, below root, are those of a config_path.
func isSamePath(root string, dirs []string, path string) bool {
	return slices.EqualFunc(dirs, filepath.SplitList(path), func(ours, theirs string) bool {
		return filepath.Clean(ours) == filepath.Clean(theirs) || filepath.Clean(ours) == filepath.Join(root, theirs)
	})
}

// ownHosts are the registries that have the own host, and those for which it is remembered.
func (a *app) ownHosts(ctx context.Context) ([]string, error) {
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

func (a *app) completeOwnHosts(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	names, _ := a.ownHosts(cmd.Context()) // what cannot be read is not offered
	return names, cobra.ShellCompDirectiveNoFileComp
}
