// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// The exit codes are an interface, documented in the man page.
const (
	exitDone    = 0 // done
	exitFailed  = 1 // it did not work, or `verify` has found something
	exitUsage   = 2 // wrong arguments
	exitNothing = 3 // there was nothing to do
)

// explain prints an error with the advice that only this edge can give, and returns the exit
// code.
func (a *app) explain(verb *cobra.Command, err error) int {
	if err == nil {
		return exitDone
	}
	if e, ok := errors.AsType[cli.ExitError](err); ok {
		return e.Code
	}
	fmt.Fprintf(a.err, "%s: error: %s\n", program, terminal.InZone(outside.Mask(err.Error()), a.zone))
	if h := hint(verb, err); h != "" {
		fmt.Fprintf(a.err, "%s: hint: %s\n", program, h)
	}
	if isUsage(err) {
		return exitUsage
	}
	return exitFailed
}

func isUsage(err error) bool {
	e, ok := errors.AsType[*publish.Error](err)
	return cli.IsUsage(err) || ok && e.Kind == publish.KindInput
}

// hints say what to do about a kind of error.
var hints = map[publish.Kind]string{
	publish.KindChannel:   "`image-catalog init CHANNEL` makes a channel",
	publish.KindExists:    "`image-catalog inspect CHANNEL` shows it",
	publish.KindSigned:    "give --key FILE, or write the version out with --out DIR and sign it elsewhere",
	publish.KindUnsigned:  "--trust FILE names more keys; --accept-unsigned builds upon a version without signature",
	publish.KindWithdrawn: "`image-catalog inspect CHANNEL IMAGE` shows all its releases",
	publish.KindAgain:     "`image-catalog promote FROM TO REPOSITORY:TAG --withdrawn` offers it again",
	publish.KindSet: "--set NAME takes all of a set; or name all of its images, " +
		"with REPOSITORY:TAG@DIGEST what no version lists",
	publish.KindTimeout: "repeat the command: what is stored is not lost",
	publish.KindOlder: "ask the admin of the registry why; if a publisher was stopped, repeat what it did, and " +
		"where the later version is right, have the channel's tag name it again",
}

// hint says what to do next.
func hint(verb *cobra.Command, err error) string {
	e, isKnown := errors.AsType[*publish.Error](err)
	switch {
	case isKnown && e.Kind == publish.KindRaced && verb.Name() == "publish":
		return "make the directory anew with the same command and --out, and sign it again"
	case isKnown && hints[e.Kind] != "":
		return hints[e.Kind]
	case isUsage(err):
		if verb.Name() == "help" {
			verb = verb.Root()
		}
		return "`" + verb.CommandPath() + " --help` shows what it takes, with examples"
	case errors.Is(err, store.ErrNoDelete):
		return "set storage.delete.enabled in the registry's configuration"
	case store.Status(err) == http.StatusPreconditionFailed:
		return "a channel's tag moves: exclude it from the registry's rules for immutable tags"
	case slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden}, store.Status(err)):
		return "log in with `docker login` or `podman login`; credential helpers are used, too"
	case errors.Is(err, context.Canceled) && slices.Contains(writing, verb.Name()):
		return "what was stored as an op is not lost: `image-catalog refresh CHANNEL` publishes it"
	}
	return ""
}

// writing are the verbs that store ops.
var writing = []string{"init", "add", "promote", "withdraw", "refresh"}
