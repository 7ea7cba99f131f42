// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/window"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
)

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
