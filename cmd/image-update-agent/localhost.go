// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/config"
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

Exit status: 0 shown or written, 1 it did not work, 2 wrong arguments, 3 it is so
already, 4 the hosts would not stay the same, or the file was edited.`,
		Example: `  image-update-agent localhost enable registry.suse.com
  image-update-agent localhost enable registry.suse.com --write
  image-update-agent localhost enable registry.suse.com --gate --write`,
		Args: someArgs(1, "HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.change(args, write, func(r localhost.Registries, host string) (localhost.Change, error) {
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
			return a.change(args, write, func(r localhost.Registries, host string) (localhost.Change, error) {
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
there, and the tags that it answers with their digests; and the registries of
followed tags that do not have it.

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
			r := localhost.Registries{Dirs: s.Containerd.CertsD}
			v, err := r.Show(cmd.Context(), filepath.Join(s.StateDir, localhost.TableFile), args...)
			if err != nil {
				return err
			}
			if err := a.show(v, func() error { return v.Write(a.page()) }); err != nil {
				return err
			}
			if v.IsOff() {
				return exitError{exitNothing}
			}
			return nil
		},
	})
}

// localhostServeCommand is for the unit, and hidden. It reads no configuration: it has to answer at once.
func (a *app) localhostServeCommand() *cobra.Command {
	var table string
	cmd := &cobra.Command{
		Use: "serve", Short: "Answer the one request of the connection on standard input", Hidden: true, Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			in, ok := a.files.in.(*os.File)
			if !ok {
				return errors.New("standard input is no connection")
			}
			s := localhost.Server{Table: table, AnswersDir: os.Getenv("RUNTIME_DIRECTORY"), Log: logger(a.err, config.Log{})}
			return s.ServeFile(in)
		},
	}
	cmd.Flags().StringVar(&table, "table", "/var/lib/image-update-agent/"+localhost.TableFile, "what it answers")
	return cmd
}

// change shows what becomes of the hosts.toml files of registries, or writes it. One that is refused keeps no other
// from it.
func (a *app) change(
	names []string, write bool, of func(localhost.Registries, string) (localhost.Change, error),
) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	r, errs, nothing := localhost.Registries{Dirs: s.Containerd.CertsD}, []error{}, true
	a.acts.Store(write)
	for _, name := range names {
		c, err := of(r, name)
		if err == nil && write {
			err = c.Write()
		}
		if errs = append(errs, err); err != nil {
			continue
		}
		nothing = nothing && c.IsNone()
		if a.output == "json" {
			errs = append(errs, a.encoder().Encode(c.View(write)))
		} else {
			c.Print(a.out, a.err, write)
		}
	}
	if err := errors.Join(errs...); err != nil || !nothing {
		return err
	}
	return exitError{exitNothing}
}

// ownHosts are the registries that have the own host.
func (a *app) ownHosts(ctx context.Context) ([]string, error) {
	s, err := a.settings()
	if err != nil {
		return nil, err
	}
	return localhost.Registries{Dirs: s.Containerd.CertsD}.Names(ctx)
}

func (a *app) completeOwnHosts(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	names, _ := a.ownHosts(cmd.Context()) // what cannot be read is not offered
	return names, cobra.ShellCompDirectiveNoFileComp
}
