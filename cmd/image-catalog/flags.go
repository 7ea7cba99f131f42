// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// The variables of the environment.
const (
	catalogVariable  = "IMAGE_CATALOG"
	passwordVariable = "COSIGN_PASSWORD"
)

// maxKeyFile bounds the file of a key, in bytes.
const maxKeyFile = 64 << 10

// flags are what several verbs share.
type flags struct {
	catalog, name string
	plainHTTP     bool
	output        string

	key            string
	trust          []string
	state          string
	acceptUnsigned bool
	unsigned       bool
	dryRun         bool
	out            string
}

// define adds the global flags.
func (f *flags) define(cmd *cobra.Command) {
	global := cmd.PersistentFlags()
	global.StringVar(&f.catalog, "catalog", "", "the catalog's repository (default: the variable IMAGE_CATALOG)")
	global.StringVar(&f.name, "name", "", "the repository that nodes know the catalog as (default: the same)")
	global.BoolVar(&f.plainHTTP, "plain-http", false, "use http where a registry does not answer with https")
	global.StringArrayVar(&f.trust, "trust", nil, "accept only what this public key has signed (a PEM file; repeatable)")
	global.StringVar(&f.state, "state", "",
		"remember the highest version of each channel in this file, and refuse a lower one")
	_ = cmd.MarkPersistentFlagFilename("trust", "pem", "pub") // just defined
	_ = cmd.MarkPersistentFlagFilename("state")               // just defined
}

// withOutput adds --output to a verb.
func (a *app) withOutput(cmd *cobra.Command) *cobra.Command {
	return cli.WithOutput(cmd, &a.flags.output)
}

// withKey adds the flags of verbs that publish.
func (a *app) withKey(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.flags.key, "key", "", "sign with this private key (a PEM file, also of cosign)")
	cmd.Flags().BoolVar(&a.flags.acceptUnsigned, "accept-unsigned", false,
		"sign what is built upon a version that is not signed")
	cmd.Flags().BoolVarP(&a.flags.dryRun, "dry-run", "n", false, "check and show all, and publish nothing")
	_ = cmd.MarkFlagFilename("key", "pem", "key") // just defined
	return a.withOutput(cmd)
}

// withOut adds --out to a verb whose result can be signed elsewhere.
func (a *app) withOut(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.flags.out, "out", "",
		"write the version into this new directory, to be signed elsewhere, and publish nothing")
	_ = cmd.MarkFlagDirname("out") // just defined
	return a.withKey(cmd)
}

// publisher makes what acts on the catalog.
func (a *app) publisher(ctx context.Context) (*publish.Publisher, error) {
	o := publish.Options{
		Repository: a.flags.catalog, Name: a.flags.name, AcceptUnsigned: a.flags.acceptUnsigned, State: a.flags.state,
		Now: a.now, Progress: a.progress.show,
		Store: store.Options{PlainHTTP: a.flags.plainHTTP, UserAgent: program + "/" + version},
	}
	if o.Repository == "" {
		o.Repository = os.Getenv(catalogVariable)
	}
	if o.Repository == "" {
		return nil, cli.Usage(errors.New("--catalog REPOSITORY or the variable " + catalogVariable + " is missing"))
	}
	if a.flags.out != "" && a.flags.key != "" {
		return nil, cli.Usage(errors.New("--out, --key: either the version is signed here, or elsewhere"))
	}
	for _, file := range a.flags.trust {
		data, err := readFile(file, maxKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--trust: %w", err)
		}
		o.Trusted = append(o.Trusted, data)
	}
	if a.flags.key != "" {
		data, err := readFile(a.flags.key, maxKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--key: %w", err)
		}
		if o.Key, err = publish.ParseKey(data, func() ([]byte, error) { return a.password(ctx) }); err != nil {
			return nil, fmt.Errorf("--key %s: %w", a.flags.key, err)
		}
	}
	p, err := publish.New(o)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return p, nil
}

// password is that of the private key: cosign's variable, or what a person types.
func (a *app) password(ctx context.Context) ([]byte, error) {
	if text, ok := os.LookupEnv(passwordVariable); ok {
		return []byte(text), nil
	}
	a.progress.end()
	return terminal.Password(ctx, a.files.in, a.err, "Password of "+a.flags.key+": ")
}

// readFile reads a small file.
func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := outside.ReadAll(f, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

const day = 24 * time.Hour

// parseSpan reads a duration as Go writes it, or days as "30d".
func parseSpan(flag, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if count, isDays := strings.CutSuffix(text, "d"); isDays {
		var days uint64
		days, err = strconv.ParseUint(count, 10, 16)
		d = time.Duration(days) * day
	}
	if err != nil || d <= 0 || d > 10*366*day {
		return 0, cli.Usage(fmt.Errorf("--%s %q: want a duration as 48h or 30d, of at most ten years", flag, text))
	}
	return d, nil
}
