// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/catalog/census"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// streams are the program's three files; tests give their own.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is the state that all verbs share. Text for out and err is made printable; files are
// the streams as they are.
type app struct {
	streams
	files    streams
	flags    flags
	progress *progress
	now      func() time.Time
	zone     *time.Location // of who reads the text
	grace    atomic.Int64   // how long an interrupted verb may take to end, a time.Duration
}

// execute runs one verb, and returns the exit code.
func execute(ctx context.Context, args []string, s streams) int {
	a := newApp(s)
	cmd := a.command()
	cli.SetArgs(cmd, args)
	cmd.SetIn(a.in)
	cmd.SetErr(a.err)
	ended := make(chan int, 1)
	go func() {
		verb, err := cmd.ExecuteContextC(ctx)
		a.progress.end()
		ended <- a.explain(verb, err)
	}()
	select {
	case code := <-ended:
		return code
	case <-ctx.Done():
	}
	select {
	case code := <-ended:
		return code
	case <-time.After(time.Duration(a.grace.Load())):
	}
	fmt.Fprintf(a.err, "%s: error: %v\n", program, context.Cause(ctx))
	return exitFailed
}

const program = "image-catalog"

// grace is how long an interrupted verb may take to end. A verb that takes longer waits for a
// terminal, a pipe or a disk, and cannot be woken.
const grace = time.Second

func newApp(s streams) *app {
	a := &app{
		streams: streams{in: s.in, out: outside.NewWriter(s.out), err: outside.NewWriter(s.err)},
		files:   s, progress: newProgress(s.err), now: time.Now, zone: time.Local,
	}
	a.grace.Store(int64(grace))
	return a
}

func (a *app) command() *cobra.Command {
	showVersion := false
	cmd := &cobra.Command{
		Use:   program,
		Short: "Publish release catalogs: stage gets every build, prod what you promote",
		Long: `image-catalog publishes release catalogs in an OCI registry. A catalog lists the releases
of images by digest, in channels: stage gets every build, prod what you promote from it,
in sets and rollouts. A withdrawn release stays listed with the reason.

Several publishers may run at once, without a lock. If one is stopped, the next one
completes its change.`,
		Example: `  export IMAGE_CATALOG=registry.example.com/releases/catalog
  image-catalog init stage --key ci.key
  image-catalog init prod --key prod.key
  image-catalog add stage registry.example.com/velum:4.0.0-rev2-build1.5 --key ci.key
  image-catalog diff stage prod
  image-catalog promote stage prod velum --rollout 48h --key prod.key --trust ci.pub`,
		SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return cli.PrintVersion(a.out, program, version)
			}
			return cmd.Help()
		},
	}
	cmd.Flags().BoolVar(&showVersion, "version", false, "show the version")
	cmd.SetOut(a.out) // before the verb completion, which keeps it
	a.flags.define(cmd)
	cmd.SetFlagErrorFunc(flagError)
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	group(cmd, "Setup", a.keygenCommand(), a.initCommand())
	group(cmd, "Release", a.addCommand(), a.promoteCommand(), a.rolloutCommand(), a.withdrawCommand(),
		a.noteCommand(),
		a.freezeCommand(), a.unfreezeCommand(), a.publishCommand())
	group(cmd, "Show", a.listCommand(), a.fleetCommand(), a.diffCommand(), a.inspectCommand(), a.logCommand(),
		a.imagesCommand())
	group(cmd, "Maintenance", a.refreshCommand(), a.verifyCommand(), a.pruneCommand())
	cmd.AddCommand(cli.VersionCommand(a.out, program, version, func(v any) error { return cli.PrintJSON(a.out, v) }))
	cli.Strict(cmd)
	return cmd
}

// group adds verbs under a title of their own.
func group(cmd *cobra.Command, title string, verbs ...*cobra.Command) {
	cmd.AddGroup(&cobra.Group{ID: title, Title: title + " Commands:"})
	for _, verb := range verbs {
		verb.GroupID = title
	}
	cmd.AddCommand(verbs...)
}

// flagError says what a flag accepts, in the place of the error of Go's strconv.
func flagError(cmd *cobra.Command, err error) error {
	if text, cause, is := strings.Cut(err.Error(), ": strconv."); is {
		want := "a number"
		if strings.HasPrefix(cause, "ParseBool") {
			want = "true or false"
		}
		err = fmt.Errorf("%s: want %s", text, want)
	}
	return cli.FlagError(cmd, err)
}

// wantArgs requires an argument for each name; with more, the last one may be repeated.
func wantArgs(more bool, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return cli.Usage(fmt.Errorf("%s: %s is missing", cmd.CommandPath(), names[len(args)]))
		case len(args) > len(names) && !more:
			return cli.Usage(fmt.Errorf("%s takes no argument %q", cmd.CommandPath(), args[len(names)]))
		}
		return nil
	}
}

// print writes a value: as JSON for programs, else as text for people.
func (a *app) print(v any, text func(page *terminal.Page)) error {
	a.progress.end()
	if a.flags.output == "json" {
		return cli.PrintJSON(a.out, v)
	}
	page := terminal.NewPage(a.files.out, a.now().In(a.zone))
	text(page)
	return page.Flush()
}

// The exit codes are an interface, documented in the man page.
const (
	exitDone    = 0 // done
	exitFailed  = 1 // an error, or verify found a problem
	exitUsage   = 2 // wrong arguments
	exitNothing = 3 // there was nothing to do
)

// explain prints an error with a hint, and returns the exit code.
func (a *app) explain(verb *cobra.Command, err error) int {
	if err == nil {
		return exitDone
	}
	if e, ok := errors.AsType[cli.ExitError](err); ok {
		return e.Code
	}
	text := outside.Mask(err.Error())
	if !isUsage(err) { // these show times as flags accept them
		text = terminal.InZone(text, a.zone)
	}
	fmt.Fprintf(a.err, "%s: error: %s\n", program, text)
	if h := hint(verb, err); h != "" {
		fmt.Fprintf(a.err, "%s: hint: %s\n", program, h)
	}
	if isUsage(err) {
		return exitUsage
	}
	return exitFailed
}

func isUsage(err error) bool {
	if batch, ok := errors.AsType[*publish.BatchError](err); ok {
		return batch.IsInput()
	}
	e, ok := errors.AsType[*publish.Error](err)
	return cli.IsUsage(err) || ok && e.Kind == publish.KindInput
}

// hints say what to do about a kind of error.
var hints = map[publish.Kind]string{
	publish.KindChannel:   "`image-catalog init CHANNEL` makes a channel",
	publish.KindExists:    "`image-catalog inspect CHANNEL` shows it",
	publish.KindSigned:    "use --key FILE, or write the version with --out DIR and sign it elsewhere",
	publish.KindUnsigned:  "use --trust FILE for other keys, or --accept-unsigned for a version without a signature",
	publish.KindClock:     "set this machine's clock",
	publish.KindWithdrawn: "`image-catalog inspect CHANNEL IMAGE` shows all its releases",
	publish.KindAgain:     "`image-catalog promote FROM TO REPOSITORY:TAG --withdrawn` offers it again",
	publish.KindSet: "use --set NAME for the whole set, or name all its images; " +
		"name an unlisted release as REPOSITORY:TAG@DIGEST",
	publish.KindFrozen: "`image-catalog log CHANNEL` shows who froze it, `image-catalog unfreeze CHANNEL` ends it",
	publish.KindSoak:   "repeat the command later, or leave --soaked out",
	publish.KindImmutable: "exclude the channel's tag from the registry's rules for immutable tags, " +
		"and repeat the command",
	publish.KindTimeout: "repeat the command: the stored change is not lost",
	publish.KindOlder: "ask the admin of the registry why; if a publisher was stopped, repeat its command; " +
		"if the later version is right, move the channel's tag to it",
}

// hint says what to do next.
func hint(verb *cobra.Command, err error) string {
	e, isKnown := errors.AsType[*publish.Error](err)
	nothing, _ := errors.AsType[*census.NothingError](err)
	switch {
	case isKnown && e.Kind == publish.KindRaced && verb.Name() == "publish":
		return "write the directory again with the same command and --out, and sign it again"
	case isKnown && e.Kind == publish.KindSigned && verb.Flags().Lookup("out") == nil:
		return "use --key FILE"
	case isKnown && e.Kind == publish.KindUnsigned && verb.Name() == "publish":
		return "use --signature FILE for each signature, and --trust FILE for each key"
	case isKnown && e.Kind == publish.KindUnsigned && e.Base > 0 && verb.Flags().Lookup("base") != nil:
		return fmt.Sprintf("version %[1]d is the newest one that your keys signed: --base %[1]d builds on it, and leaves "+
			"out what came later; --trust FILE accepts other keys", e.Base)
	case isKnown && e.Kind == publish.KindUnsigned && verb.Flags().Lookup("accept-unsigned") == nil:
		return "use --trust FILE for other keys"
	case isKnown && hints[e.Kind] != "":
		return hints[e.Kind]
	case isUsage(err):
		if verb.Name() == "help" {
			verb = verb.Root()
		}
		return "`" + verb.CommandPath() + " --help` shows the arguments, with examples"
	case nothing != nil:
		return fleetHint(nothing)
	case errors.Is(err, store.ErrNoDelete):
		return "set storage.delete.enabled in the registry's configuration"
	case slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden}, store.Status(err)):
		return "log in with `docker login` or `podman login`, or set DOCKER_AUTH_CONFIG"
	case errors.Is(err, context.Canceled) && slices.Contains(writing, verb.Name()):
		return "a change that was stored is not lost: `image-catalog refresh CHANNEL` publishes it"
	}
	return ""
}

// writing are the verbs that store ops.
var writing = []string{"init", "add", "promote", "withdraw", "note", "refresh", "freeze", "unfreeze", "rollout"}

// progress shows the current step in one line of a terminal. It prints nothing elsewhere.
type progress struct {
	w     *outside.Writer
	width int // 0: no terminal

	mu    sync.Mutex
	shown time.Time // the last one
}

// often is how long a step stays at least: a batch has thousands.
const often = 50 * time.Millisecond

// wipe empties the line that the cursor is in (ECMA-48, EL).
const wipe = "\r\x1b[K"

func newProgress(w io.Writer) *progress {
	p := &progress{w: outside.NewWriter(w)}
	if f, ok := w.(*os.File); ok && terminal.Is(f) {
		p.width = max(terminal.NewPage(w, time.Now()).Width, 40)
	}
	return p
}

func (p *progress) show(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.width > 0 && now.Sub(p.shown) >= often {
		p.w.Control(wipe)
		fmt.Fprint(p.w, outside.Line(step, p.width-1))
		p.shown = now
	}
}

// end clears the line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.shown.IsZero() {
		p.w.Control(wipe)
		p.shown = time.Time{}
	}
}
