// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
)

func (a *app) publishCommand() *cobra.Command {
	var signatures []string
	cmd := &cobra.Command{
		Use:   "publish DIR --signature FILE --trust FILE",
		Short: "Publish a version that was signed elsewhere",
		Long: `publish publishes the version that another command wrote into DIR with --out, with the
signature of DIR/payload.json: bytes or base64. A key of --trust must have made the signature,
because nodes refuse any other. If the channel has changed since, publish stores nothing. You
can repeat publish after an error. --dry-run needs neither, and shows what the version changes:
each release, and each change (op) with who asked for it and when.

Exit status: 0 published, 3 the channel has this version already.`,
		Example: `  cosign sign-blob --key prod.key --tlog-upload=false to-sign/payload.json >to-sign.sig
  openssl dgst -sha256 -sign prod.pem -out to-sign.sig to-sign/payload.json
  image-catalog publish to-sign --signature to-sign.sig --trust prod.pub`,
		Args: wantArgs(false, "DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(signatures) == 0 && !a.flags.dryRun {
				return cli.Usage(errors.New("--signature FILE is missing"))
			}
			if len(a.flags.trust) == 0 && !a.flags.dryRun {
				return cli.Usage(errors.New("--trust FILE is missing: the public key that checks the signature"))
			}
			sigs, err := readSignatures(cmd.Context(), signatures)
			if err != nil {
				return err
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
			got, err := p.PublishDir(cmd.Context(), args[0], sigs, a.flags.dryRun)
			return a.printDone(got, err)
		},
	}
	cmd.Flags().StringArrayVar(&signatures, "signature", nil, "file with a signature of DIR/payload.json (repeatable)")
	cmd.Flags().BoolVarP(&a.flags.dryRun, "dry-run", "n", false, "check everything, and publish nothing")
	_ = cmd.MarkFlagFilename("signature") // just defined
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return a.withOutput(cmd)
}

// readSignatures reads the files of --signature.
func readSignatures(ctx context.Context, files []string) ([][]byte, error) {
	var sigs [][]byte
	for _, file := range files {
		data, err := readFile(ctx, file, maxKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--signature: %w", err)
		}
		sigs = append(sigs, data)
	}
	return sigs, nil
}

// printDone prints a result, unless there is an error.
func (a *app) printDone(got publish.Result, err error) error {
	if err != nil {
		return err
	}
	return a.printResult(got)
}
