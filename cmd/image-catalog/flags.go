// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/base/window"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// The variables of the environment.
const (
	catalogVariable  = "IMAGE_CATALOG"
	passwordVariable = "COSIGN_PASSWORD"
)

// maxKeyFile bounds the file of a key, in bytes.
const maxKeyFile = 64 << 10

// flags are the flags of several verbs.
type flags struct {
	catalog, name string
	plainHTTP     bool
	output        string

	by             string
	keys           []string
	require        int
	trust          []string
	state          string
	acceptUnsigned bool
	base           uint64
	accept         []string
	from           string // the channel that is promoted: --trust FILE names its keys
	unsigned       bool
	dryRun         bool
	out            string

	prometheus, tokenFile string
}

// define adds the global flags.
func (f *flags) define(cmd *cobra.Command) {
	global := cmd.PersistentFlags()
	global.StringVar(&f.catalog, "catalog", "", "repository of the catalog (default: the variable IMAGE_CATALOG)")
	global.StringVar(&f.name, "name", "", "repository under which nodes know the catalog (default: the same one)")
	global.BoolVar(&f.plainHTTP, "plain-http", false, "use http if a registry does not answer with https")
	global.StringArrayVar(&f.trust, "trust", nil,
		"accept only what this public key signed: FILE (PEM), or CHANNEL=FILE for one channel (repeatable)")
	global.IntVar(&f.require, "require", 0, "accept only what this many of a channel's keys signed (default: one)")
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
	cmd.Flags().StringArrayVar(&a.flags.keys, "key", nil,
		"sign with this private key: a PEM file, also of cosign, or env://VARIABLE (repeatable)")
	cmd.Flags().BoolVar(&a.flags.acceptUnsigned, "accept-unsigned", false,
		"sign the next version although the last one is not signed")
	cmd.Flags().BoolVarP(&a.flags.dryRun, "dry-run", "n", false, "show what would be published, and publish nothing")
	cmd.Flags().StringVar(&a.flags.by, "by", "", "who publishes, for the log (default: the CI's variable, or USER)")
	_ = cmd.MarkFlagFilename("key", "pem", "key") // just defined
	a.withOutput(cmd)
	checkOutput := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		return cmp.Or(checkOutput(cmd, args), checkReason(cmd))
	}
	return cmd
}

// checkReason checks --reason before anything is read.
func checkReason(cmd *cobra.Command) error {
	f := cmd.Flags().Lookup("reason")
	if f == nil {
		return nil
	}
	if err := catalog.CheckReason(f.Value.String()); err != nil {
		return cli.Usage(fmt.Errorf("--reason: %w", err))
	}
	return nil
}

// withOut adds --out to a verb whose result can be signed elsewhere.
func (a *app) withOut(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.flags.out, "out", "",
		"publish nothing, and write the version into this new directory, to sign it elsewhere")
	cmd.Flags().Uint64Var(&a.flags.base, "base", 0,
		"build on this version instead of the newest one, with only those pending changes that --key signed")
	cmd.Flags().StringArrayVar(&a.flags.accept, "accept", nil,
		"include this pending change (op), although fewer keys than --require signed it (repeatable)")
	_ = cmd.MarkFlagDirname("out") // just defined
	return a.withKey(cmd)
}

// publisher returns the publisher of the catalog.
func (a *app) publisher(ctx context.Context) (*publish.Publisher, error) {
	o := publish.Options{
		Repository: a.flags.catalog, Name: a.flags.name, AcceptUnsigned: a.flags.acceptUnsigned,
		State: a.flags.state, Base: a.flags.base,
		By: cmp.Or(a.flags.by, publisherName()), Run: runURL(), Now: a.now, Progress: a.progress.show,
		Store: store.Options{PlainHTTP: a.flags.plainHTTP, UserAgent: program + "/" + version},
	}
	if o.Repository == "" {
		o.Repository = os.Getenv(catalogVariable)
	}
	if o.Repository == "" {
		return nil, cli.Usage(errors.New("--catalog REPOSITORY or the variable " + catalogVariable + " is missing"))
	}
	if a.flags.require < 0 {
		return nil, cli.Usage(fmt.Errorf("--require %d: want at least 1", a.flags.require))
	}
	if a.flags.out != "" && len(a.flags.keys) > 0 {
		return nil, cli.Usage(errors.New("--out and --key exclude each other: with --out, you sign elsewhere"))
	}
	trust, err := a.trust(ctx)
	if err != nil {
		return nil, err
	}
	o.Trust = trust
	for _, name := range a.flags.keys {
		data, err := readKey(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("--key: %w", err)
		}
		key, err := publish.ParseKey(data, func() ([]byte, error) { return a.password(ctx, name) })
		if err != nil {
			return nil, fmt.Errorf("--key %s: %w", name, err)
		}
		o.Keys = append(o.Keys, key)
	}
	if most := len(o.Keys) + len(a.flags.trust); o.Require > most {
		return nil, cli.Usage(fmt.Errorf("--require %d: give at least as many keys with --key and --trust", o.Require))
	}
	p, err := publish.New(o)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return p, nil
}

// trust returns the public keys of channels.
func (a *app) trust(ctx context.Context) (publish.Trust, error) {
	out := publish.Trust{Of: map[string][][]byte{}, Require: a.flags.require, Accept: a.flags.accept}
	for _, word := range a.flags.trust {
		channel, file := trusted(word)
		data, err := readFile(ctx, file, maxKeyFile)
		if err != nil {
			return out, fmt.Errorf("--trust: %w", err)
		}
		if err := publish.CheckPublic(data); err != nil {
			return out, cli.Usage(fmt.Errorf("--trust %s: %w", file, err))
		}
		if channel = cmp.Or(channel, a.flags.from); channel == "" {
			out.All = append(out.All, data)
		} else {
			out.Of[channel] = append(out.Of[channel], data)
		}
	}
	for channel := range out.Of { // a key of no channel is one of each, but for promote, where it is one of FROM
		if a.flags.from == "" {
			out.Of[channel] = append(out.Of[channel], out.All...)
		}
	}
	return out, nil
}

// trusted divides CHANNEL=FILE; the channel is empty if there is none.
func trusted(word string) (channel, file string) {
	channel, file, is := strings.Cut(word, "=")
	if !is || catalog.CheckChannel(channel) != nil {
		return "", word
	}
	return channel, file
}

// checkScope refuses several keys that count for each of several channels: one of them is not a key of each, and what
// it has signed elsewhere would be called signed.
func (a *app) checkScope(channels []string) error {
	unscoped := slices.DeleteFunc(slices.Clone(a.flags.trust), func(word string) bool {
		channel, _ := trusted(word)
		return channel != ""
	})
	if len(unscoped) < 2 || len(channels) < 2 {
		return nil
	}
	return cli.Usage(fmt.Errorf("--trust %s counts for each of %d channels: use --trust CHANNEL=FILE",
		strings.Join(unscoped, " and --trust "), len(channels)))
}

// checkTrust refuses to promote where the keys of one channel are known and those of the other one are not: the keys of
// FROM do not count for TO, and without keys of FROM everybody says what it offers.
func (a *app) checkTrust(from, to string) error {
	if len(a.flags.trust) == 0 || len(a.flags.keys) > 0 {
		return nil
	}
	known := map[string]bool{}
	for _, word := range a.flags.trust {
		channel, _ := trusted(word)
		known[cmp.Or(channel, from)] = true
	}
	switch {
	case !known[to]:
		return cli.Usage(fmt.Errorf("--trust FILE names the keys of %[1]s only; the keys of %[2]s are missing: "+
			"use --trust %[2]s=FILE for them", from, to))
	case !known[from]:
		return cli.Usage(fmt.Errorf("the keys of %s are missing: use --trust FILE for them", from))
	}
	return nil
}

// readKey reads a key: a file, or a variable of the environment, as in env://CATALOG_KEY.
func readKey(ctx context.Context, name string) ([]byte, error) {
	variable, is := strings.CutPrefix(name, "env://")
	if !is {
		return readFile(ctx, name, maxKeyFile)
	}
	text, isSet := os.LookupEnv(variable)
	if !isSet {
		return nil, cli.Usage(fmt.Errorf("the variable %s is not set", variable))
	}
	return []byte(text), nil
}

// password returns the password of a private key: from cosign's variable, or from the terminal.
func (a *app) password(ctx context.Context, key string) ([]byte, error) {
	if text, ok := os.LookupEnv(passwordVariable); ok {
		return []byte(text), nil
	}
	a.progress.end()
	return terminal.Password(ctx, a.files.in, a.err, "Password of "+key+": ")
}

// exclusive refuses a flag beside one of others.
func exclusive(cmd *cobra.Command, flag string, others ...string) error {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	for _, other := range others {
		if cmd.Flags().Changed(other) {
			return cli.Usage(fmt.Errorf("--%s and --%s exclude each other", flag, other))
		}
	}
	return nil
}

// readFile reads a small file, which may be a FIFO.
func readFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	return wait.Result(ctx, func() ([]byte, error) { return publish.ReadFile(name, limit) })
}

// span reads the duration of a flag.
func span(flag, text string) (time.Duration, error) {
	d, err := window.ParseSpan(text)
	if err != nil {
		err = cli.Usage(fmt.Errorf("--%s %w", flag, err))
	}
	return d, err
}

// end reads the time in the future of a flag.
func (a *app) end(flag, text string) (time.Time, error) {
	t, err := window.ParseEnd(text, a.now())
	if err != nil {
		err = cli.Usage(fmt.Errorf("--%s %w", flag, err))
	}
	return t.UTC(), err
}

// expiry reads --expires: a time, or "never".
func (a *app) expiry(text string) (time.Time, error) {
	if text == "never" {
		return time.Time{}, nil
	}
	return a.end("expires", text)
}

// find returns what a channel has now, read so, or the version that CHANNEL@VERSION names.
func find(
	ctx context.Context, p *publish.Publisher, word string,
	now func(ctx context.Context, channel string) (*publish.View, error),
) (*publish.View, error) {
	if !isOld(word) {
		return now(ctx, word)
	}
	channel, version, err := parseVersion(word)
	if err != nil {
		return nil, err
	}
	v, err := p.ReadVersion(ctx, channel, version)
	return p.Past(v), err
}

// view returns the publisher, and what CHANNEL or CHANNEL@VERSION names.
func (a *app) view(ctx context.Context, word string) (*publish.Publisher, *publish.View, error) {
	p, err := a.publisher(ctx)
	if err != nil {
		return nil, nil, err
	}
	v, err := find(ctx, p, word, p.View)
	return p, v, err
}

// parseVersion divides CHANNEL@VERSION.
func parseVersion(word string) (channel string, version uint64, err error) {
	channel, number, _ := strings.Cut(word, "@")
	version, err = strconv.ParseUint(number, 10, 53)
	if err != nil || version == 0 {
		return "", 0, cli.Usage(fmt.Errorf("%s: want CHANNEL or CHANNEL@VERSION, as in prod@30", word))
	}
	return channel, version, publish.CheckChannel(channel)
}

// isOld reports whether a word names one version, and not what a channel has now.
func isOld(word string) bool { return strings.Contains(word, "@") }

// ciSystem are the variables of a CI system: one that says that it runs the job, the user who started the job, the
// address of the job or of its server, and what follows that.
type ciSystem struct{ runs, user, server, path string }

// ciSystems are those that are known. Only the first one that runs the job is believed: whoever starts a pipeline of
// GitLab may give it a variable of GitHub's. GitHub's variables are Gitea's and Forgejo's, too.
var ciSystems = []ciSystem{
	{"GITLAB_CI", "GITLAB_USER_LOGIN", "CI_JOB_URL", ""},
	{"GITHUB_ACTIONS", "GITHUB_ACTOR", "GITHUB_SERVER_URL", "/${GITHUB_REPOSITORY}/actions/runs/${GITHUB_RUN_ID}"},
	{"JENKINS_URL", "BUILD_USER", "BUILD_URL", ""},
}

// job returns who started the CI job, and its address; empty: there is none, or it does not say.
func job() (user, address string) {
	for _, ci := range ciSystems {
		user, server := os.Getenv(ci.user), os.Getenv(ci.server)
		if cmp.Or(os.Getenv(ci.runs), user, server) == "" {
			continue
		}
		if server != "" {
			address = server + os.ExpandEnv(ci.path)
		}
		return user, address
	}
	return "", ""
}

// publisherName returns who publishes: the user who started the CI job, or the user of the machine.
func publisherName() string {
	user, _ := job()
	return cmp.Or(user, os.Getenv("USER"))
}

// runURL returns the address of the CI job, without a login; empty: there is none.
func runURL() string {
	_, text := job()
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
