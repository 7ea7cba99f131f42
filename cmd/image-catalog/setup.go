// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/window"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// keyPair is `keygen --output json`.
type keyPair struct {
	Private   string `json:"private"` // file
	Public    string `json:"public"`  // file
	Encrypted bool   `json:"encrypted"`
}

func (a *app) keygenCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "keygen NAME",
		Short: "Make a key pair: NAME.key and NAME.pub",
		Long: `keygen makes a key pair, ECDSA on P-256. It replaces no file. NAME.key signs a channel and stays
with the publisher; nodes get NAME.pub. If the variable COSIGN_PASSWORD is set and not empty,
the private key is encrypted with it, as cosign does.`,
		Example: `  image-catalog keygen ci`,
		Args:    wantArgs(false, "NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "" || strings.HasSuffix(args[0], "/") {
				return cli.Usage(fmt.Errorf("NAME %q: want the name of a file without its extension", args[0]))
			}
			password := []byte(os.Getenv(passwordVariable))
			private, public, err := publish.NewKey(password)
			if err != nil {
				return err
			}
			out := keyPair{Private: args[0] + ".key", Public: args[0] + ".pub", Encrypted: len(password) > 0}
			if err := writePair(out, private, public); err != nil {
				return err
			}
			return a.print(out, func(page *terminal.Page) {
				page.Line("Wrote " + out.Private + ": keep it secret, it signs channels.")
				page.Line("Wrote " + out.Public + ": copy it to the nodes.")
			})
		},
	})
}

// writePair writes both files of a key pair, or none.
func writePair(pair keyPair, private, public []byte) error {
	for _, file := range []string{pair.Private, pair.Public} {
		if _, err := os.Lstat(file); err == nil {
			return &fs.PathError{Op: "create", Path: file, Err: fs.ErrExist}
		}
	}
	if err := writeNew(pair.Private, private, 0o600); err != nil {
		return err
	}
	if err := writeNew(pair.Public, public, 0o644); err != nil {
		return errors.Join(err, os.Remove(pair.Private))
	}
	return nil
}

// writeNew writes a file that must not exist yet: all of it, or no file.
func writeNew(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

func (a *app) initCommand() *cobra.Command {
	expires := "never"
	cmd := &cobra.Command{
		Use:   "init CHANNEL...",
		Short: "Make new channels",
		Long: `init makes channels, and prints the configuration of nodes that follow them. Nodes refuse a
channel without a valid signature unless they set catalog.signatures: off. --key signs the
channel here, with --out you sign it elsewhere, and --unsigned leaves it unsigned.

In a registry with immutable tags, exclude the tag CHANNEL: it moves with each version, and
init tests this first. All other tags of a catalog never move: CHANNEL-vNUMBER,
op-CHANNEL-TIME and sha256-HEX.sig.`,
		Example: `  image-catalog init stage --key ci.key
  image-catalog init prod --expires 30d --out to-sign`,
		Args: wantArgs(true, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.flags.out != "" && len(args) > 1 {
				return cli.Usage(errors.New("--out takes one channel, because each one is signed separately"))
			}
			if err := checkChannels(args); err != nil {
				return err
			}
			if err := a.checkSigned(); err != nil {
				return err
			}
			end, err := a.expiry(expires)
			if err != nil {
				return err
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			for _, channel := range args {
				err := a.change(cmd.Context(), p, channel, publish.Refresh(end), publish.How{New: true})
				if err != nil {
					return err
				}
			}
			a.printNodeConfig(p.Name(), args[len(args)-1])
			return nil
		},
	}
	cmd.Flags().StringVar(&expires, "expires", expires,
		"when nodes stop automatic applies unless you run refresh: never, "+window.Moments)
	cmd.Flags().BoolVar(&a.flags.unsigned, "unsigned", false, "make channels without a signature")
	return a.withOut(cmd)
}

// checkChannels checks the names of new channels before the first one is made.
func checkChannels(names []string) error {
	for n, name := range names {
		if err := publish.CheckChannel(name); err != nil {
			return err
		}
		if slices.Contains(names[:n], name) {
			return cli.Usage(fmt.Errorf("%s: the channel is named twice", name))
		}
	}
	return nil
}

// nodeKeys is where nodes have the public keys of a catalog.
const nodeKeys = "/etc/image-update-agent/catalog-keys"

// printNodeConfig prints the configuration of a node that follows a channel.
func (a *app) printNodeConfig(repository, channel string) {
	if a.flags.output == "json" || a.flags.dryRun {
		return
	}
	last, hint := "keys: ["+nodeKeys+"]",
		fmt.Sprintf("Copy the public key to %s/%s.pem on these nodes.\n", nodeKeys, channel)
	if a.flags.unsigned {
		last, hint = "signatures: off", ""
	}
	fmt.Fprintf(a.out, "\nNodes follow it with these lines in /etc/image-update-agent/config.yaml:\n\n"+
		"catalog:\n  repository: %s\n  channel: %s\n  %s\n\n%s", repository, channel, last, hint)
}

// checkSigned refuses to make a channel unless a flag says how it is signed.
func (a *app) checkSigned() error {
	isSigned := len(a.flags.keys) > 0 || a.flags.out != ""
	switch {
	case !isSigned && !a.flags.unsigned:
		return cli.Usage(errors.New("--key FILE is missing: use --out DIR to sign the channel elsewhere, " +
			"or --unsigned for a channel without signatures"))
	case isSigned && a.flags.unsigned:
		return cli.Usage(errors.New("--unsigned excludes --key and --out"))
	}
	return nil
}

func (a *app) refreshCommand() *cobra.Command {
	var expires string
	cmd := &cobra.Command{
		Use:   "refresh CHANNEL",
		Short: "Set when a channel expires, and publish pending changes",
		Long: `refresh sets when a channel expires. Without --expires, it only publishes pending changes:
those of a publisher that was stopped.

Exit status: 0 published, 3 there was nothing to publish.`,
		Example: `  image-catalog refresh stage --expires 14d --key ci.key
  image-catalog refresh prod --expires 90d --out to-sign
  image-catalog refresh stage --key ci.key`,
		Args: wantArgs(false, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			do := publish.Settle
			if expires != "" {
				end, err := a.expiry(expires)
				if err != nil {
					return err
				}
				do = publish.Refresh(end)
			}
			return a.ask(cmd.Context(), args[0], do, publish.How{})
		},
	}
	cmd.Flags().StringVar(&expires, "expires", "",
		"when nodes stop automatic applies unless you run refresh again: never, "+window.Moments)
	return a.withOut(cmd)
}

// pruned is `prune --output json`.
type pruned struct {
	Channel string `json:"channel"`
	DryRun  bool   `json:"dryRun"`
	publish.Pruned
}

func (a *app) pruneCommand() *cobra.Command {
	o := publish.Pruning{Keep: 100}
	older := "24h"
	cmd := &cobra.Command{
		Use:   "prune CHANNEL",
		Short: "Delete old versions of a channel",
		Long: `prune deletes old versions of a channel, their signatures, stored changes (ops) that the channel
has, and signatures whose version is gone. It keeps the newest versions, and what was replaced
within --older: at least 24 hours, because another publisher may still need it. prune says what
it keeps and why. The log of the channel keeps who changed what. The registry frees the
space when it collects garbage.

Exit status: 0 deleted, 3 there was nothing to delete.`,
		Example: `  image-catalog prune stage --keep 50 --key ci.key
  image-catalog prune prod --older 90d --key prod.key
  image-catalog prune stage --dry-run`,
		Args: wantArgs(false, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Keep < 1 {
				return cli.Usage(errors.New("--keep: want at least 1"))
			}
			if o.Older, err = span("older", older); err != nil {
				return err
			}
			if o.Older < 24*time.Hour {
				return cli.Usage(fmt.Errorf("--older %s: want at least 24h", older))
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			o.DryRun = a.flags.dryRun
			got, err := p.Prune(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			err = a.print(pruned{args[0], o.DryRun, got}, func(page *terminal.Page) { a.writePruned(page, got) })
			if err == nil && len(got.Deleted) == 0 {
				return cli.Exit(exitNothing)
			}
			return err
		},
	}
	cmd.Flags().IntVar(&o.Keep, "keep", o.Keep, "keep this many of the newest versions")
	cmd.Flags().BoolVar(&o.Foreign, "foreign", false,
		"also delete pending changes that no key of the channel signed: they never count")
	cmd.Flags().StringVar(&older, "older", older, "keep what was replaced within this time: 48h, 90d")
	return a.withKey(cmd)
}

func (a *app) writePruned(page *terminal.Page, got publish.Pruned) {
	for _, tag := range got.Deleted {
		page.Line("- " + tag)
	}
	for _, kept := range got.Kept {
		page.Line(fmt.Sprintf("Kept %s: %s.", terminal.Plural(kept.Count, "tag"), kept.Why))
	}
	verb := "Deleted"
	if a.flags.dryRun {
		verb = "Would delete"
	}
	page.Line(fmt.Sprintf("%s %s.", verb, terminal.Plural(len(got.Deleted), "tag")))
}
