// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent"
)

// clock is a time for people, in their zone, which it names.
func clock(t time.Time, zone *time.Location) string {
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

func (p *page) clock(t time.Time) string { return clock(t, p.now.Location()) }

// inZone is a text for people. Texts have their times in RFC 3339, for programs, and
// so have those of others that an error brings, such as x509's. Whatever the words
// around them say, people get them as all other times.
func inZone(text string, zone *time.Location) string {
	var out strings.Builder
	for text != "" {
		at, rest, isTime := cutTime(text)
		if isTime {
			out.WriteString(clock(at, zone))
			text = rest
			continue
		}
		// The next can begin where a number does.
		n := 1
		for n < len(text) && (!isDigit(text[n]) || isDigit(text[n-1])) {
			n++
		}
		out.WriteString(text[:n])
		text = text[n:]
	}
	return out.String()
}

// cutTime takes the time off with which a text begins.
func cutTime(text string) (at time.Time, rest string, ok bool) {
	n := len("2006-01-02T15:04:05")
	if len(text) <= n || text[n-len("T15:04:05")] != 'T' {
		return time.Time{}, text, false
	}
	if text[n] == '.' {
		for n++; n < len(text) && isDigit(text[n]); n++ {
		}
	}
	if strings.HasPrefix(text[n:], "Z") {
		n++
	} else {
		n = min(n+len("+01:00"), len(text))
	}
	at, err := time.Parse(time.RFC3339, text[:n])
	return at, text[n:], err == nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// sentence is what systemctl status shows of a daemon.
func sentence(s agent.Status) string { return inZone(agent.Sentence(s), time.Local) }
