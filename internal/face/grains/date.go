// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"strconv"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

// timestamp matches plain text that PyYAML reads as a date (the implicit resolver of resolver.py).
var timestamp = lazyregexp.New(`^(?:(\d{4})-(\d\d)-(\d\d)|` +
	`(\d{4})-(\d\d?)-(\d\d?)(?:[Tt]|[ \t]+)(\d\d?):(\d\d):(\d\d)(?:\.\d*)?` +
	`(?:[ \t]*(?:Z|[-+](\d\d?)(?::(\d\d))?))?)$`)

// isImpossibleDate reports whether PyYAML reads a text as a date but cannot construct one. Salt before 2018.3 then
// drops all grains of the file; later versions read the text.
func isImpossibleDate(text string) bool {
	found := timestamp().FindStringSubmatch(text)
	if found == nil {
		return false
	}
	var field [12]int
	for i, digits := range found[1:] {
		field[i+1], _ = strconv.Atoi(digits) // two or four digits, or none
	}
	year, month, day := field[1]+field[4], field[2]+field[5], field[3]+field[6]
	date := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if year < 1 || date.Year() != year || date.Month() != time.Month(month) || date.Day() != day {
		return true
	}
	return field[7] > 23 || field[8] > 59 || field[9] > 59 || field[10]*60+field[11] >= 24*60
}
