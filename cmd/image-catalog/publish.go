// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/cli"
)

func (a *app) publishCommand() *cobra.Command {
	var signature string
	cmd := &cobra.Command{
		Use:   "publish DIR --signature FILE --trust FILE",
		Short: "Publish a version that was signed elsewhere",
		Long: `publish stores what promote, add, withdraw, refresh or init wrote with --out, with the
signature of its payload.json: bytes, or base64. The signature must be one of a key of
--trust: nodes would refuse another. It can be repeated after a failure. If the channel has
moved on since DIR was made, nothing is stored.

Exit status: 0 published, 3 it is published already.`,
		Example: `  cosign sign-blob --key prod.key --tlog-upload=false to-sign/payload.json >to-sign.sig
  openssl dgst -sha256 -sign prod.pem -out to-sign.sig to-sign/payload.json
  image-catalog publish to-sign --signature to-sign.sig --trust prod.pub`,
		Args: wantArgs(false, "DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if signature == "" {
				return cli.Usage(errors.New("--signature FILE is missing"))
			}
			if len(a.flags.trust) == 0 {
				return cli.Usage(errors.New("--trust FILE is missing: the public key that the signature is checked with"))
			}
			data, err := readFile(signature, maxKeyFile)
			if err != nil {
				return fmt.Errorf("--signature: %w", err)
			}
			repository, name, err := publish.CatalogOf(args[0])
			if err != nil {
				return err
			}
			if a.flags.catalog == "" {
				a.flags.catalog = repository
			}
			if a.flags.name == "" {
				a.flags.name = name
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			got, err := p.PublishDir(cmd.Context(), args[0], data)
			return a.printDone(got, err)
		},
	}
	cmd.Flags().StringVar(&signature, "signature", "", "the file with the signature of DIR/payload.json")
	_ = cmd.MarkFlagFilename("signature") // just defined
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return a.withOutput(cmd)
}

// printDone prints a result, unless there is an error.
func (a *app) printDone(got publish.Result, err error) error {
	if err != nil {
		return err
	}
	return a.printResult(got)
}
