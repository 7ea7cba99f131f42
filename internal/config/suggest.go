// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"reflect"
	"strings"
)

// suggest words what an unknown key may have been meant for: the nearest key of that level, a key of that name
// elsewhere, or all keys that may stand there.
func suggest(level, unknown string, keys []field) string {
	var known []string
	for _, f := range keys {
		known = append(known, f.name)
	}
	if best := Nearest(unknown, known); best != "" {
		return fmt.Sprintf("did you mean %q?", join(level, best))
	}
	if meant := elsewhere("", unknown, reflect.TypeFor[Settings]()); meant != "" {
		return fmt.Sprintf("did you mean %q?", meant)
	}
	return "known here: " + strings.Join(known, ", ")
}

// elsewhere is the path of a key of that name, in a section or in records; empty: there is none.
func elsewhere(level, name string, of reflect.Type) string {
	if of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	for _, f := range fields(of) {
		path := join(level, f.name)
		if f.name == name {
			return path
		}
		if !f.isSection() && !f.isRecords() {
			continue
		}
		if found := elsewhere(path, name, f.Type); found != "" {
			return found
		}
	}
	return ""
}

// Nearest is the word that an unknown one may have been meant for; empty: none is near.
func Nearest(unknown string, known []string) string {
	best, least := "", 1+len(unknown)/4
	for _, word := range known {
		d := distance(strings.ToLower(unknown), strings.ToLower(word))
		if d < least || d == least && best == "" {
			best, least = word, d
		}
	}
	return best
}

// distance is the Levenshtein distance, in bytes, of names that are not long; an overlong one is far from every key.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
