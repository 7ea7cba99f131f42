// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// run runs a verb to its end.
func run(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	return runWith(t, "", args...)
}

func runWith(t *testing.T, in string, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = execute(t.Context(), args, streams{in: strings.NewReader(in), out: &o, err: &e})
	return o.String(), e.String(), code
}

// shop is a registry with images and a catalog.
type shop struct {
	t    *testing.T
	host string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return &shop{t, strings.TrimPrefix(server.URL, "http://")}
}

func (s *shop) push(repository string, tags ...string) {
	s.t.Helper()
	for _, tag := range tags {
		image, err := mutate.AppendLayers(empty.Image, static.NewLayer([]byte(repository+tag), types.DockerLayer))
		require.NoError(s.t, err)
		image, err = mutate.ConfigFile(image, &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers"}})
		require.NoError(s.t, err)
		ref, err := name.NewTag(s.host + "/" + repository + ":" + tag)
		require.NoError(s.t, err)
		require.NoError(s.t, remote.Write(ref, image))
	}
}

// run runs a verb on the catalog; HOST in arguments is the registry.
func (s *shop) run(args ...string) (out, errs string, code int) {
	s.t.Helper()
	all := []string{args[0], "--catalog", s.host + "/catalog"}
	for _, arg := range args[1:] {
		all = append(all, strings.ReplaceAll(arg, "HOST", s.host))
	}
	out, errs, code = run(s.t, all...)
	out = strings.ReplaceAll(out, strings.ReplaceAll(s.host, ":", "_"), "BELOW")
	return strings.ReplaceAll(out, s.host, "HOST"), strings.ReplaceAll(errs, s.host, "HOST"), code
}

// ends runs a verb that ends with a code, and says something: as its result if there was nothing to do, else as its
// error.
func (s *shop) ends(code int, says string, args ...string) {
	s.t.Helper()
	out, errs, is := s.run(args...)
	assert.Equal(s.t, code, is, "%s: %s", args, errs)
	if code == exitNothing {
		assert.Contains(s.t, out, says, args)
		return
	}
	assert.Contains(s.t, errs, says, args)
}

func (s *shop) does(args ...string) string {
	s.t.Helper()
	out, errs, code := s.run(args...)
	require.Zero(s.t, code, "%s: %s", args, errs)
	return out
}

// One release from its build to its withdrawal.
func TestFromBuildToWithdrawal(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.push("caasp/velum", "4.0.0-rev1-build1.1", "4.0.0-rev1-build1.2")
	s.push("caasp/etcd", "3.4-rev1-build1.1")
	s.does("init", "stage", "prod", "--expires", "30d", "--unsigned", "--by", "ci-bot")
	batch := filepath.Join(t.TempDir(), "builds.txt")
	require.NoError(t, os.WriteFile(batch, []byte(
		s.host+"/caasp/velum:4.0.0-rev1-build1.2\n"+s.host+"/caasp/etcd:3.4-rev1-build1.1\n"), 0o600))
	out := s.does("add", "stage", "--batch", batch, "--set", "caasp-4.5", "--dry-run")
	assert.Contains(t, out, "+ HOST/caasp/velum:4.0.0-rev1-build1.2")
	assert.Contains(t, out, "Would publish stage, version 2.")
	out = s.does("add", "stage", "--batch", batch, "--set", "caasp-4.5")
	assert.Contains(t, out, "Published stage, version 2, sha256:")
	s.ends(exitNothing, "Nothing to do: stage stays at version 2.", "add", "stage", "--batch", batch, "--set", "caasp-4.5")
	s.does("add", "stage", "HOST/caasp/velum:4.0.0-rev1-build1.1")

	out = s.does("diff", "stage", "prod")
	assert.Regexp(t, `^IMAGE +stage +prod +CHANGE
HOST/caasp/etcd +3.4-rev1-build1.1 +- +new
HOST/caasp/velum +4.0.0-rev1-build1.2 +- +new
$`, out)
	s.does("promote", "stage", "prod", "--set", "caasp-4.5", "--rollout", "48h", "--start", "2026-11-22T10:00:00Z")
	s.ends(exitNothing, "", "diff", "stage", "prod")
	out = s.does("inspect", "prod", "velum")
	assert.Regexp(t, `set caasp-4.5; rollout from 2026-11-22 .* for 48 h`, out)

	out = s.does("withdraw", "prod", "velum:4.0.0-rev1-build1.2", "--reason", "bsc#1: bad", "--by", "ci-bot")
	assert.Regexp(t, `^- HOST/caasp/velum:4.0.0-rev1-build1.2 +withdrawn: bsc#1: bad
Published prod, version 3`, out, "a withdrawal adds nothing")
	s.ends(exitNothing, "", "withdraw", "prod", "velum:4.0.0-rev1-build1.2", "--reason", "bsc#1: bad")
	assert.Contains(t, s.does("inspect", "prod", "velum"), "withdrawn: bsc#1: bad")
	var shown inspected
	require.NoError(t, json.Unmarshal([]byte(s.does("inspect", "prod", "--history", "--output", "json")), &shown))
	assert.EqualValues(t, 3, shown.Version)
	assert.Len(t, shown.History, 3)
	assert.Len(t, shown.Images, 2)
	assert.Contains(t, s.does("inspect", "prod", "--history"), ": ci-bot withdrew 1 release\n")
	assert.Contains(t, s.does("verify", "--images", "--unsigned"), "2 channels checked except for signatures, no problems found.")
	s.ends(exitNothing, "Deleted 0 tags.", "prune", "prod", "--keep", "1")
}

// What prod has withdrawn comes back by its tag and --withdrawn only.
func TestPromoteSkipsAndNamesWhatWasWithdrawn(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.push("velum", "4.0.0-rev1-build1.1")
	s.push("etcd", "3.4-rev1-build1.1")
	s.does("init", "stage", "prod", "--unsigned")
	s.does("add", "stage", "HOST/velum:4.0.0-rev1-build1.1")
	s.does("promote", "stage", "prod", "--all")
	s.does("withdraw", "prod", "velum:4.0.0-rev1-build1.1", "--reason", "bsc#1: bad")
	s.does("add", "stage", "HOST/etcd:3.4-rev1-build1.1")
	const named = "  HOST/velum:4.0.0-rev1-build1.1  skipped: withdrawn from prod: bsc#1: bad\n"
	assert.Contains(t, s.does("diff", "stage", "prod"), "withdrawn from prod: bsc#1: bad\n")
	out := s.does("promote", "stage", "prod", "--all")
	assert.Regexp(t, `HOST/velum:4.0.0-rev1-build1.1 +skipped: withdrawn from prod: bsc#1: bad\n`, out)
	assert.Contains(t, out, "Published prod, version 4")
	s.ends(exitNothing, named, "promote", "stage", "prod", "velum")
	var got publish.Result
	out, _, code := s.run("promote", "stage", "prod", "--all", "--output", "json")
	assert.Equal(t, exitNothing, code)
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Len(t, got.Outcomes, 2)
	assert.True(t, got.Outcomes[1].Skipped)
	_, errs, code := s.run("promote", "stage", "prod", "velum:4.0.0-rev1-build1.1")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, "withdrawn from prod: bsc#1: bad")
	assert.Contains(t, errs, "hint: `image-catalog promote FROM TO REPOSITORY:TAG --withdrawn` offers it again")
	s.ends(exitUsage, "the tag is missing", "promote", "stage", "prod", "velum", "--withdrawn")
	s.does("promote", "stage", "prod", "velum:4.0.0-rev1-build1.1", "--withdrawn")
	s.ends(exitNothing, "", "diff", "stage", "prod")

	s.does("add", "prod", "HOST/velum:4.0.0-rev1-build1.1", "HOST/etcd:3.4-rev1-build1.1", "--set", "caasp-1")
	_, errs, code = s.run("promote", "prod", "stage", "etcd")
	assert.Zero(t, code, errs)
	s.does("withdraw", "prod", "--set", "caasp-1", "--reason", "bsc#2")
	assert.Contains(t, s.does("inspect", "prod", "etcd"), "withdrawn: bsc#2; set caasp-1")
}

func TestSignedElsewhereByFiles(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dir := t.TempDir()
	_, errs, code := run(t, "keygen", filepath.Join(dir, "prod"))
	require.Zero(t, code, errs)
	key, pub, out, sig := filepath.Join(dir, "prod.key"), filepath.Join(dir, "prod.pub"), filepath.Join(dir, "out"), filepath.Join(dir, "sig")
	text := s.does("init", "prod", "--out", out, "--trust", pub)
	assert.Contains(t, text, "Wrote prod, version 1, to "+out+": sign payload.json, then run image-catalog publish.")
	require.NoError(t, os.WriteFile(sig, sign(t, key, filepath.Join(out, publish.PayloadFile)), 0o600))
	text, errs, code = run(t, "publish", out, "--signature", sig, "--trust", pub, "--dry-run")
	require.Zero(t, code, errs)
	assert.Contains(t, text, "Would publish prod, version 1.")
	text, errs, code = run(t, "publish", out, "--signature", sig, "--trust", pub)
	require.Zero(t, code, errs)
	assert.Contains(t, text, "Published prod, version 1")
	_, _, code = run(t, "publish", out, "--signature", sig, "--trust", pub)
	assert.Equal(t, exitNothing, code)
	s.ends(exitFailed, "hint: use --key FILE, or write the version with --out DIR and sign it elsewhere", "refresh", "prod", "--expires", "30d")
	s.does("refresh", "prod", "--expires", "30d", "--key", key)
	_, errs, code = run(t, "publish", out, "--signature", sig, "--trust", pub)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, "hint: write the directory again")
	_, errs, code = run(t, "publish", out, "--signature", sig)
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "--trust FILE is missing")
	assert.Contains(t, s.does("verify", "--trust", pub), "1 channel checked, no problems found.")
	s.push("velum", "1.0-rev1-build1.1")
	s.does("add", "prod", "HOST/velum:1.0-rev1-build1.1", "--key", key)
	out += "-note"
	s.does("note", "prod", "velum:1.0-rev1-build1.1", "--fixes", "CVE-2026-1234", "--out", out, "--trust", pub)
	text, errs, code = run(t, "publish", out, "--dry-run", "--trust", pub)
	require.Zero(t, code, errs)
	assert.Regexp(t, `(?m)^~ .*/velum:1.0-rev1-build1.1 +noted: fixes CVE-2026-1234$`, text)
}

// Nothing is said to be well that was not checked.
func TestVerifySaysWhatItDidNotVerify(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.ends(exitFailed, "HOST/catalog: the catalog has no channel", "verify", "--unsigned")
	text := s.does("init", "stage", "--unsigned")
	assert.Contains(t, text, "It is not signed: nodes refuse it unless they set catalog.signatures: off.")
	text, _, code := s.run("verify")
	assert.Equal(t, exitFailed, code)
	assert.Equal(t, "stage: signature not checked: --trust FILE is missing\n", text)
	assert.NotContains(t, text, "no problems")
	text, _, code = s.run("verify", "--output", "json")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, text, "signature not checked")
	s.ends(exitFailed, "has no such channel", "verify", "prod", "--unsigned")
}

func TestWrongArguments(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.does("init", "stage", "prod", "--unsigned")
	long := strings.Repeat("x", 513)
	for line, want := range map[string]string{
		"inspect":                                           "CHANNEL is missing",
		"inspect Stage":                                     "Stage: not the name of a channel",
		"promote stage prod":                                "want either IMAGE..., --set NAME or --all",
		"promote stage prod velum --all":                    "want either IMAGE..., --set NAME or --all",
		"promote prod" + " prod velum":                      "prod: FROM and TO are the same channel",
		"promote stage prod velum --start x":                "--start requires --rollout",
		"promote stage prod velum --rollout 48":             "want a duration such as 48h or 30d",
		"promote stage prod velum --rollout 48h --start x":  `--start "x": want 2026-12-24, 2026-12-24T18:00:00+01:00`,
		"promote stage prod velum --rollout 9999d":          "at most",
		"withdraw stage velum:1":                            "--reason TEXT is missing",
		"withdraw stage --reason x":                         "want either IMAGE:TAG... or --set NAME",
		"withdraw stage velum:1 --set a --reason x":         "want either IMAGE:TAG... or --set NAME",
		"promote stage prod --all --withdrawn":              "give each release as REPOSITORY:TAG",
		"add stage":                                         "want IMAGE... or --batch FILE",
		"add stage velum:1-rev1-build1.1 --platform x/y/z/": "--platform",
		"add stage --batch /dev/null":                       "--batch /dev/null: names no image",
		"add stage velum":                                   "the tag is missing",
		"images stage --format yaml":                        "want list, crane, oras, regctl, skopeo, skopeo-sync or regsync",
		"images stage --format regsync":                     "requires --to MIRROR",
		"images stage --format crane":                       "requires --to MIRROR",
		"images stage --newest -1":                          "--newest: want at least 1",
		"images stage --newest few":                         `invalid argument "few" for "--newest" flag: want a number`,
		"init new --expires 2020-01-01 --unsigned":          `--expires "2020-01-01": is in the past`,
		"add HOST/velum:1 stage":                            "HOST/velum:1: not the name of a channel: the channel comes before images",
		"withdraw velum:1 prod --reason x":                  "velum:1: not the name of a channel: the channel comes before images",
		"add stage@2 velum:1":                               "stage@2: want a channel without a version",
		"prune stage@2":                                     "stage@2: want a channel without a version",
		"verify stage@2 --unsigned":                         "stage@2: want a channel without a version",
		"verify Stage --unsigned":                           "Stage: not the name of a channel",
		"add velum@sha256:ab stage":                         "the channel comes before images",
		"publish . --signature main.go --trust main.go":     "not a directory that --out wrote",
		"refresh stage --trust main.go":                     "--trust main.go: ",
		"images stage --format skopeo-sync --floating":      "a floating tag may be ahead",
		"inspect stage --output yaml":                       "text or json",
		"publish dir":                                       "--signature FILE is missing",
		"prune stage --keep 0":                              "want at least 1",
		"prune stage --older 1h":                            "--older 1h: want at least 24h",
		"refresh stage --key a --out b":                     "--out and --key exclude each other",
		"init a b --out c":                                  "--out takes one channel",
		"diff stage":                                        "TO is missing",
		"diff stage prod more":                              "takes no argument",
		"images stage --to https://mirror.example.com":      "want HOST or HOST/PATH",
		"promote stage prod velum --rollout 48h --now":      "--now and --rollout exclude each other",
		"promote prod --revert --all":                       "--revert and --all exclude each other",
		"promote prod stage --revert":                       "takes no argument",
		"promote prod@x --revert":                           "as in prod@30",
		"promote stage prod velum --soaked x":               "want a duration such as 48h or 30d",
		"rollout prod --pause --resume":                     "--pause and --resume exclude each other",
		"rollout prod velum --set a":                        "want either IMAGE... or --set NAME",
		"rollout prod --over 9999d":                         "at most",
		"freeze prod":                                       "--until TIME is missing, for example 2026-12-24",
		"freeze prod --until 2020-01-01":                    "is in the past",
		"freeze prod --until tomorrow":                      `--until "tomorrow": want 2026-12-24, `,
		"freeze prod --until 8h --reason " + long:           "--reason: want at most 512 printable bytes",
		"unfreeze prod --reason " + long:                    "--reason: want at most 512 printable bytes",
		"rollout prod --pause --reason " + long:             "--reason: want at most 512 printable bytes",
		"promote prod --revert --reason " + long:            "--reason: want at most 512 printable bytes",
		"withdraw prod a:1 --reason " + long:                "--reason: want at most 512 printable bytes",
		"inspect prod --catalog UPPER/x":                    "catalog: want a repository: ",
		"add stage velum:1 --set " + long:                   `--set: set "xxxxxxxxxxxxxxxxxxxx": want 1 to 128 printable bytes`,
		"add stage UPPER/x:1":                               "not an image: ",
		"init a B --unsigned":                               "B: not the name of a channel",
		"init a b a --unsigned --dry-run":                   "a: the channel is named twice",
		"keygen dir/":                                       `NAME "dir/": want the name of a file without its extension`,
		"log prod --limit 0":                                "want at least 1",
		"diff prod@0 prod":                                  "want CHANNEL or CHANNEL@VERSION",
		"init more":                                         "--key FILE is missing",
		"init more --unsigned --out x":                      "--unsigned excludes --key and --out",
		"verify --unsigned --trust x":                       "exclude each other",
	} {
		_, errs, code := s.run(strings.Fields(line)...)
		assert.Equal(t, exitUsage, code, line)
		assert.Contains(t, errs, want, line)
		assert.Contains(t, errs, "hint: `image-catalog ", line)
	}
	for line, want := range map[string]string{
		"inspect prd":                      "prd: HOST/catalog has no such channel, did you mean prod?",
		"inspect test-channel":             "HOST/catalog has no such channel, only prod, stage",
		"promote stage prod velum:1 b:2":   "nothing was published: 2 images are wrong\n  velum: channel stage lists no such image\n  b: ",
		"withdraw prod a:1 b:2 --reason x": "nothing was published: 2 images are wrong\n  a: ",
	} {
		s.ends(exitFailed, want, strings.Fields(line)...)
	}
	_, errs, code := s.run("freeze", "prod", "--until", "8h", "--reason", "two\nlines")
	assert.Equal(t, exitUsage, code, errs)
	_, errs, code = s.run("inspect", "a")
	assert.Equal(t, exitFailed, code, "init makes all channels or none: %s", errs)
	_, errs, code = run(t, "inspec")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, `did you mean "inspect"?`)
	_, errs, code = run(t, "inspect", "stage")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "--catalog REPOSITORY or the variable IMAGE_CATALOG is missing")
	_, errs, code = runWith(t, s.host+"/velum\n"+s.host+"/velum:1 a b\n", "add", "stage", "--batch", "-", "--catalog", s.host+"/catalog")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "nothing was published: 2 images are wrong\n  line 1: ")
}

func TestFormatsOfImages(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.push("caasp/velum", "4.0.0-rev1-build1.1")
	s.does("init", "prod", "--unsigned")
	s.does("add", "prod", "HOST/caasp/velum:4.0.0-rev1-build1.1")
	assert.Regexp(t, `^HOST/caasp/velum:4.0.0-rev1-build1.1@sha256:\w{64}\nHOST/catalog:prod-v00000002@sha256:\w{64}\nHOST/catalog:prod@sha256:\w{64}\n$`,
		s.does("images", "prod"))
	assert.Regexp(t, `(?m)^HOST/caasp/velum@sha256:\w{64} mirror/BELOW/caasp/velum:4.0.0-rev1-build1.1$`, s.does("images", "prod", "--to", "mirror"))
	assert.Contains(t, s.does("images", "prod", "--to", "mirror", "--floating"), " mirror/BELOW/caasp/velum:4.0.0-rev1\n")
	assert.Equal(t, "\"HOST\":\n  images:\n    \"caasp/velum\":\n    - \"4.0.0-rev1-build1.1\"\n    \"catalog\":\n    - \"prod-v00000002\"\n    - \"prod\"\n",
		s.does("images", "prod", "--format", "skopeo-sync"))
	assert.Equal(t, "\"HOST\":\n  images:\n    \"caasp/velum\":\n    - \"4.0.0-rev1-build1.1\"\n    \"catalog\":\n    - \"prod-v00000002\"\n",
		s.does("images", "prod@2", "--format", "skopeo-sync"), "the tag prod may name a later version")
	assert.Regexp(t, `(?m)^- source: "HOST/catalog@sha256:\w{64}"\n  target: "mirror/BELOW/catalog:prod"\n  type: image$`,
		s.does("images", "prod", "--format", "regsync", "--to", "mirror"))
	assert.Contains(t, s.does("images", "prod", "--output", "json"), `"kind": "catalog"`)
	for format, want := range map[string]string{
		"crane": "crane copy ", "regctl": "regctl image copy ", "oras": "oras copy ",
		"skopeo": "skopeo copy --all --preserve-digests docker://",
	} {
		assert.Regexp(t, `(?m)^`+want+`HOST/caasp/velum@sha256:\w{64} (docker://)?mirror/BELOW/caasp/velum:4.0.0-rev1-build1.1$`,
			s.does("images", "prod", "--format", format, "--to", "mirror"))
	}
}

// An interrupted verb ends, and says what becomes of its op.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.does("init", "prod", "--unsigned")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := execute(ctx, []string{"refresh", "prod", "--catalog", s.host + "/catalog"}, streams{in: strings.NewReader(""), out: &out, err: &errs})
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs.String(), "context canceled")
	assert.Contains(t, errs.String(), "hint: a change that was stored is not lost")
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	out, _, code := run(t, "--version")
	assert.Zero(t, code)
	assert.Regexp(t, `^image-catalog devel \(go`, out)
	out, _, code = run(t, "version", "--output", "json")
	assert.Zero(t, code)
	assert.Contains(t, out, `"version": "devel"`)
	out, _, code = run(t)
	assert.Zero(t, code)
	assert.Contains(t, out, "promote")
	for _, shell := range []string{"bash", "fish", "zsh"} {
		out, _, code = run(t, "completion", shell)
		assert.Zero(t, code)
		assert.Contains(t, out, "image-catalog")
	}
}

// A rollout that is under way is neither ended nor begun anew by the way.
func TestPromotionKeepsARollout(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.push("caasp/velum", "4.0.0-rev1-build1.1")
	s.push("caasp/etcd", "3.4-rev1-build1.1")
	s.does("init", "stage", "prod", "--unsigned")
	s.does("add", "stage", "HOST/caasp/velum:4.0.0-rev1-build1.1", "HOST/caasp/etcd:3.4-rev1-build1.1", "--set", "a")
	promote := func(want int, args ...string) {
		t.Helper()
		_, errs, code := s.run(append([]string{"promote", "stage", "prod", "--set", "a"}, args...)...)
		assert.Equal(t, want, code, errs)
	}
	rollouts := func() (out []string) {
		t.Helper()
		var shown inspected
		require.NoError(t, json.Unmarshal([]byte(s.does("inspect", "prod", "--output", "json")), &shown))
		for _, image := range shown.Images {
			text := "none"
			if o := image.Releases[0].Rollout; o != nil {
				text = o.From.Format("2006-01-02") + " " + strconv.Itoa(o.Hours)
			}
			out = append(out, text)
		}
		return out
	}
	promote(exitDone, "--rollout", "48h", "--start", "2026-01-02T10:00:00Z")
	both := func(text string) []string { return []string{text, text} }
	assert.Equal(t, both("2026-01-02 48"), rollouts())
	promote(exitNothing)
	promote(exitNothing, "--rollout", "48h")
	promote(exitNothing, "--rollout", "2d")
	assert.Equal(t, both("2026-01-02 48"), rollouts())
	promote(exitDone, "--rollout", "48h", "--start", "2026-01-03T10:00:00Z")
	assert.Equal(t, both("2026-01-03 48"), rollouts())
	today := func() []string { return both(time.Now().UTC().Format("2006-01-02") + " 96") }
	before := today()
	promote(exitDone, "--rollout", "96h")
	assert.Contains(t, [][]string{before, today()}, rollouts())
	promote(exitDone, "--now")
	assert.Equal(t, both("none"), rollouts())
	promote(exitNothing)
}

// All that is wrong is named at once: what cannot be read, and what is not there.
func TestAllWrongImagesAreNamed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.push("velum", "4.0.0-rev1-build1.1")
	s.does("init", "stage", "--unsigned")
	batch := filepath.Join(t.TempDir(), "builds.txt")
	require.NoError(t, os.WriteFile(batch, []byte(
		s.host+"/velum\n"+s.host+"/velum:4.0.0-rev1-build1.1\n"+s.host+"/velum:9.9\n"+strings.Repeat("x", 5000)+"\n"), 0o600))
	_, errs, code := s.run("add", "stage", "--batch", batch, "HOST/velum:8.8", "HOST/velum")
	assert.Equal(t, exitFailed, code)
	for _, want := range []string{
		"5 images are wrong", "\n  HOST/velum:8.8: the registry has no such tag", "\n  HOST/velum: the tag is missing",
		"line 1: HOST/velum: the tag is missing", "line 3: HOST/velum:9.9: the registry has no such tag", "line 4: xxx",
	} {
		assert.Contains(t, errs, want)
	}
}

// Channels in the wrong order are named, and a key of the wrong kind.
func TestWrongOrderAndWrongKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ci := filepath.Join(t.TempDir(), "ci")
	_, errs, code := run(t, "keygen", ci)
	require.Zero(t, code, errs)
	s.push("velum", "4.0.0-rev1-build1.1")
	s.does("init", "stage", "prod", "--key", ci+".key")
	s.does("add", "stage", "HOST/velum:4.0.0-rev1-build1.1", "--key", ci+".key")
	s.ends(exitFailed, "velum: channel prod lists no such image, but stage does: FROM comes before TO", "promote", "prod", "stage", "velum", "--key", ci+".key")
	_, errs, _ = s.run("refresh", "stage", "--key", ci+".pub")
	assert.Contains(t, errs, "ci.pub: a public key: want the private one")
	s.ends(exitUsage, "ci.key: a private key: want the public one", "inspect", "stage", "--trust", ci+".key")
	assert.Regexp(t, `(?m)^HOST/velum +4.0.0-rev1-build1.1 `, s.does("inspect", "stage", "velum:4.0.0-rev1-build1.1"))
	prod := filepath.Join(t.TempDir(), "prod")
	_, errs, code = run(t, "keygen", prod)
	require.Zero(t, code, errs)
	_, errs, _ = s.run("refresh", "stage", "--key", prod+".key")
	assert.Contains(t, errs, "hint: use --trust FILE for other keys, or --accept-unsigned for a version without a signature\n")
	_, errs, _ = s.run("inspect", "stage", "--trust", prod+".pub")
	assert.Contains(t, errs, "hint: use --trust FILE for other keys\n", "a flag that the verb does not have helps nobody")
	s.ends(exitUsage, "counts for each of 2 channels: use --trust CHANNEL=FILE", "list", "--trust", ci+".pub", "--trust", prod+".pub")
	s.ends(exitUsage, "counts for each of 2 channels: use --trust CHANNEL=FILE", "verify", "--trust", ci+".pub", "--trust", prod+".pub")
	s.does("verify", "prod", "--trust", ci+".pub", "--trust", prod+".pub")
	out := s.does("list", "--trust", ci+".pub")
	assert.Regexp(t, `(?m)^CHANNEL +VERSION +CREATED +IMAGES +EXPIRES +FROZEN +SIGNED BY$`, out)
	assert.Regexp(t, `(?m)^stage +2 +.* 1 +never +no +sha256:[0-9a-f]{64}$`, out)
	assert.Regexp(t, `(?m)^stage +2 +.* 1 +never +no +not checked$`, s.does("list"))
}

// stuck is a standard input that nobody writes to. It cancels the verb that reads it.
type stuck struct {
	cancel  func()
	release <-chan struct{}
}

func (s stuck) Read([]byte) (int, error) {
	s.cancel()
	<-s.release
	return 0, errors.New("released")
}

// An interrupt ends a verb at once, also while it waits for its input.
func TestInterruptEndsReading(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	a := newApp(streams{in: stuck{cancel, release}, out: &strings.Builder{}, err: &strings.Builder{}})
	_, err := a.wanted(ctx, nil, "-")
	require.ErrorIs(t, err, context.Canceled)

	fifo := filepath.Join(t.TempDir(), "key")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	_, err = readKey(ctx, fifo)
	require.ErrorIs(t, err, context.Canceled)
	_, err = readSignatures(ctx, []string{fifo})
	require.ErrorIs(t, err, context.Canceled)
}

// A registry that redirects has tokens in its addresses, and Go's errors quote them.
func TestErrorsHaveNoSecret(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := newApp(streams{in: nil, out: &out, err: &out})
	for _, cause := range []string{
		`Get "https://cdn.example.com/blob?X-Amz-Signature=0f3a9hunter2&n=3": EOF`,
		`Put "https://u:hunter2@registry.example.com/v2/": 401 Unauthorized`,
		"unexpected status: 307 Location: https://cdn.example.com/?token=hunter2",
	} {
		a.explain(a.command(), fmt.Errorf("registry.example.com/catalog: %s", cause))
	}
	assert.Contains(t, out.String(), "https://cdn.example.com/blob")
	assert.NotContains(t, out.String(), "hunter2")
}
