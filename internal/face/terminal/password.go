// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// ErrNoTerminal: there is no terminal for a password prompt.
var ErrNoTerminal = errors.New("no terminal to ask for a password")

// Password asks for a password on the terminal in without echoing it. When ctx ends, it restores the echo.
func Password(ctx context.Context, in io.Reader, out io.Writer, prompt string) ([]byte, error) {
	f, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, ErrNoTerminal
	}
	state, err := term.GetState(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	type answer struct {
		text []byte
		err  error
	}
	typed := make(chan answer, 1)
	fmt.Fprint(out, prompt)
	go func() {
		text, err := term.ReadPassword(int(f.Fd()))
		typed <- answer{text, err}
	}()
	select {
	case a := <-typed:
		fmt.Fprintln(out)
		return a.text, a.err
	case <-ctx.Done():
		_ = term.Restore(int(f.Fd()), state) // nothing else can be done
		fmt.Fprintln(out)
		return nil, context.Cause(ctx)
	}
}
