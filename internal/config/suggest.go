// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
)

// suggest words what an unknown key may have been meant for: the nearest key of
// that level, a key of that name elsewhere, or all keys that may stand there.
func suggest(unknown string, keys []key, prefix string) string {
	known := make([]string, 0, len(keys))
	for _, k := range keys {
		known = append(known, k.name)
	}
	if best := Nearest(unknown, known); best != "" {
		return fmt.Sprintf("did you mean %q?", prefix+best)
	}
	elsewhere := ""
	leaves(schema(), "", func(path string, k key) {
		if k.name == unknown {
			elsewhere = path
		} else if _, within := find(k.keys, unknown); within {
			elsewhere = path + "." + unknown
		}
	})
	if elsewhere != "" {
		return fmt.Sprintf("did you mean %q?", elsewhere)
	}
	return "known here: " + strings.Join(known, ", ")
}

// Nearest is the word that an unknown one may have been meant for; empty: none is
// near.
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

// distance is the Levenshtein distance, in bytes, of names that are not long;
// an overlong one is far from every key.
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
