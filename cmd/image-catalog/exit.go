// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/catalog/fleet"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

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
	publish.KindSet: "use --set NAME for all of the set, or name all of its images; " +
		"name with REPOSITORY:TAG@DIGEST what no version lists",
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
	nothing, _ := errors.AsType[*fleet.NothingError](err)
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
var writing = []string{"init", "add", "promote", "withdraw", "refresh", "freeze", "unfreeze", "rollout"}
