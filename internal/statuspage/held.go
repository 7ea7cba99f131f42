// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"io"
	"time"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// Held is what `hold` shows.
type Held struct {
	Held   []string   `json:"held"` // repositories; "*": all
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until"` // null: until unhold
}

// NewHeld returns what was held; until zero: without an end.
func NewHeld(held []string, reason string, until time.Time) Held {
	v := Held{Held: append([]string{}, held...), Reason: reason}
	if !until.IsZero() {
		v.Until = new(until.UTC())
	}
	return v
}

// Write writes a line for each repository.
func (v Held) Write(w io.Writer, zone *time.Location) error {
	until := "until unhold"
	if v.Until != nil {
		until = "until " + terminal.Clock(*v.Until, zone)
	}
	for _, h := range v.Held {
		if _, err := fmt.Fprintf(w, "held %s: %s\n", until, everyImage(h)); err != nil {
			return err
		}
	}
	return nil
}

// Unheld is what `unhold` shows.
type Unheld struct {
	Unheld []string `json:"unheld"` // repositories; "*": what held all
}

// NewUnheld returns what is held no more.
func NewUnheld(held []string) Unheld { return Unheld{append([]string{}, held...)} }

// Write writes a line for each repository.
func (v Unheld) Write(w io.Writer) error {
	for _, h := range v.Unheld {
		if _, err := fmt.Fprintf(w, "held no more: %s\n", everyImage(h)); err != nil {
			return err
		}
	}
	if len(v.Unheld) > 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, "nothing of it was held by `hold`; `image-update-agent status` shows what holds")
	return err
}

func everyImage(held string) string {
	if held == record.AllImages {
		return "every image"
	}
	return held
}
