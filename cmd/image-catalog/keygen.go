// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

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
