// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"io"
	"time"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// Held is what `hold` shows.
type Held struct {
	Held   []string   `json:"held"` // repositories; "*": all
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until"` // null: until resume
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
	until := "until resume"
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

// Resumed is what `resume` shows.
type Resumed struct {
	Resumed []string `json:"resumed"` // repositories; "*": what held all
}

// NewUnheld returns what is held no more.
func NewUnheld(held []string) Resumed { return Resumed{append([]string{}, held...)} }

// Write writes a line for each repository.
func (v Resumed) Write(w io.Writer) error {
	for _, h := range v.Resumed {
		if _, err := fmt.Fprintf(w, "resumed: %s\n", everyImage(h)); err != nil {
			return err
		}
	}
	if len(v.Resumed) > 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, "there was no such hold; `image-update-agent status` lists the holds")
	return err
}

func everyImage(held string) string {
	if held == record.AllImages {
		return "every image"
	}
	return held
}
