// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// Clock is a time for people, in their zone, which it names.
func Clock(t time.Time, zone *time.Location) string {
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

// stamp is a time in RFC 3339.
var stamp = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)

// InZone is a text for people. Texts have their times in RFC 3339, for programs, and so have those of others that an
// error brings, such as x509's. People get all of them as Clock writes them.
func InZone(text string, zone *time.Location) string {
	return stamp.ReplaceAllStringFunc(text, func(found string) string {
		at, err := time.Parse(time.RFC3339, found)
		if err != nil {
			return found
		}
		return Clock(at, zone)
	})
}

// Ago is how long something is over.
func Ago(d time.Duration) string {
	if d < 0 {
		return "in the future: the clock was set"
	}
	return span(d) + " ago"
}

// span is a duration in its largest unit.
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

// Plural counts what.
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

// maxNames is how many are named of those that are alike.
const maxNames = 3

// Few names the first, and counts the others.
func Few(names []string) string {
	text := strings.Join(names[:min(len(names), maxNames)], ", ")
	if more := len(names) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// OneLine keeps text from outside from looking like several lines or columns of
// ours.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Quoted is a text as it is, or in quotes where it has something to escape.
func Quoted(text string) string {
	if q := fmt.Sprintf("%q", text); q != `"`+text+`"` {
		return q
	}
	return text
}
