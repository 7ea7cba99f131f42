// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

// Clock returns a time for people, in their zone, with the zone's name.
func Clock(t time.Time, zone *time.Location) string {
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

// stamp matches a time in RFC 3339.
var stamp = lazyregexp.New(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)

// InZone converts the times in a text for people. Texts have times in RFC 3339, for programs, including those in errors
// of others such as x509's. InZone formats all of them as Clock does.
func InZone(text string, zone *time.Location) string {
	return stamp().ReplaceAllStringFunc(text, func(found string) string {
		at, err := time.Parse(time.RFC3339, found)
		if err != nil {
			return found
		}
		return Clock(at, zone)
	})
}

// Ago returns a duration as time in the past.
func Ago(d time.Duration) string {
	if d < 0 {
		return "in the future: the clock was changed"
	}
	return span(d) + " ago"
}

// span returns a duration in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// Plural returns a count with its noun.
func Plural(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(what, "y"))
	default:
		return fmt.Sprintf("%d %ss", n, what)
	}
}

// maxNames is how many of several names are listed.
const maxNames = 3

// Few returns the first names and the number of the others.
func Few(names []string) string {
	text := strings.Join(names[:min(len(names), maxNames)], ", ")
	if more := len(names) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// OneLine makes text from outside one line, so that it cannot look like several lines or columns.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Quoted returns a text, in quotes if it has characters to escape.
func Quoted(text string) string {
	if q := fmt.Sprintf("%q", text); q != `"`+text+`"` {
		return q
	}
	return text
}
