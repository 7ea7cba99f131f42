// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// field is a key: a field of Settings, of a section or of a record, with its tags.
//
//	yaml     the key; ",omitempty": optional in a record
//	is       the kind of its scalar, of its list's items or of its table's values; with ?: it may be empty
//	names    the kind of its table's names
//	default  its text, or its list's items; for a record's key, the meaning of a missing one
//	platform the field of platform.Platform with its default; of a list, the first
//	key      the key that names each of its records; ",layered": records with the same name in several files all count
//	most     the maximum number of records
type field struct {
	reflect.StructField
	name  string
	kind  string // empty for a section or records
	args  []string
	empty bool
}

// fields returns the keys of a section or of a record.
func fields(of reflect.Type) []field {
	var found []field
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" {
			continue
		}
		kind, args, _ := strings.Cut(f.Tag.Get("is"), " ")
		kind, empty := strings.CutSuffix(kind, "?")
		found = append(found, field{f, name, kind, strings.Fields(args), empty})
	}
	return found
}

func find(keys []field, name string) (field, bool) {
	for _, f := range keys {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

// shape returns the kind of node expected as the value.
func (f field) shape() yaml.Kind {
	switch kind := f.Type.Kind(); {
	case kind == reflect.Map, f.isSection():
		return yaml.MappingNode
	case kind == reflect.Slice && f.kind != "searchpath":
		return yaml.SequenceNode
	}
	return yaml.ScalarNode
}

func (f field) isSection() bool { return f.kind == "" && f.Type.Kind() == reflect.Struct }

// defaultOn returns the default of a key on a platform.
func (f field) defaultOn(p platform.Platform) string {
	if name := f.Tag.Get("platform"); name != "" {
		value := reflect.ValueOf(p).FieldByName(name)
		if value.Kind() == reflect.Slice {
			value = value.Index(0)
		}
		return value.String()
	}
	return f.Tag.Get("default")
}

// defaults returns all keys with their defaults, as in a file.
func defaults(of reflect.Type, p platform.Platform) *yaml.Node {
	all := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fields(of) {
		value := child(all, f.name)
		def := f.defaultOn(p)
		switch value.Kind = f.shape(); {
		case f.isSection():
			*value = *defaults(f.Type, p)
		case value.Kind == yaml.ScalarNode:
			*value = *textNode(def)
		default:
			for item := range strings.FieldsSeq(def) {
				value.Content = append(value.Content, textNode(item))
			}
		}
	}
	return all
}

// suggest returns the advice for an unknown key: the nearest key of that level, a key with that name elsewhere, or all
// valid keys.
func suggest(level, unknown string, keys []field) string {
	var known []string
	for _, f := range keys {
		known = append(known, f.name)
	}
	if best := Nearest(unknown, known); best != "" {
		return fmt.Sprintf("did you mean %q?", join(level, best))
	}
	if meant := elsewhere("", unknown, reflect.TypeFor[Settings]()); meant != "" && isNear(level, meant) {
		return fmt.Sprintf("did you mean %q?", meant)
	}
	return "known keys: " + strings.Join(known, ", ")
}

// isNear reports whether a key may have been meant on another level: one level too deep or too high, or in the same
// section.
func isNear(level, meant string) bool {
	section, _, isDeeper := strings.Cut(meant, ".")
	return level == "" || !isDeeper || section == strings.Split(level, ".")[0]
}

// elsewhere returns the path of a key with that name, in a section or in records; empty if there is none.
func elsewhere(level, name string, of reflect.Type) (found string) {
	for _, f := range fields(of) {
		path := join(level, f.name)
		switch {
		case f.name == name:
			return path
		case f.isSection():
			found = elsewhere(path, name, f.Type)
		case f.kind == "":
			found = elsewhere(path, name, f.Type.Elem())
		}
		if found != "" {
			return found
		}
	}
	return ""
}

// Nearest returns the known word nearest to an unknown one; empty if none is near.
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

// distance returns the Levenshtein distance, in bytes, of short names; an overlong one is far from every key.
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
