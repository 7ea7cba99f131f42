// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/window"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/tags"
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

// kind parses a text, or returns the problem and the valid values.
type kind func(text string, args []string) (any, error)

// kinds are the values of the tag `is`.
var kinds = map[string]kind{
	"bool":        onOff,
	"onoff":       onOff, // the two words
	"oneof":       oneOf, // the words
	"platform":    func(text string, _ []string) (any, error) { return oneOf(text, platform.Names()) },
	"number":      number,   // minimum, maximum
	"size":        size,     // minimum, maximum, meaning of 0
	"duration":    duration, // the maximum; 0: it may be off
	"level":       parsed(level),
	"updates":     parsed(tags.ParseChange),
	"time":        parsed(window.ParseTime),
	"days":        parsed(days),
	"timeofday":   parsed(window.ParseStart),
	"length":      parsed(window.ParseLength),
	"zone":        parsed(window.LoadZone),
	"image":       parsed(image),
	"podlist":     parsed(podList),
	"severity":    parsed(catalog.ParseSeverity),
	"max":         func(string, []string) (any, error) { return tags.Tag{}, nil }, // parsed with the scheme of its entry
	"path":        checked(pathBelowRoot),
	"searchpath":  checked(path),
	"filename":    checked(fileName),
	"filepattern": checked(filePattern),
	"host":        checked(host),
	"listen":      checked(loopback),
	"namespace":   checked(identifier),
	"node":        checked(nodeName),
	"repository":  checked(repository),
	"prefix":      checked(prefix),
	"match":       checked(match),
	"tag":         checked(tag),
	"tagpattern":  checked(tagPattern),
	"denial":      checked(denial),
	"tagregexp":   checked(tagRegexp),
	"reason":      checked(CheckReason),
	"lockserver":  checked(lockServer),
	"lockgroup":   checked(lockGroup),
	"lease":       checked(leaseName),
	"webhookname": checked(webhookName),
	"webhookurl":  checked(publicURL),
}

// parsed returns a kind with a parser; its arguments are the valid words.
func parsed[T any](parse func(text string) (T, error)) kind {
	return func(text string, words []string) (any, error) {
		if _, err := oneOf(text, words); err != nil && len(words) > 0 {
			return nil, err
		}
		return parse(text)
	}
}

// checked returns a kind for a text that is only checked.
func checked(check func(text string) error) kind {
	return func(text string, _ []string) (any, error) { return text, check(text) }
}

func oneOf(text string, words []string) (any, error) {
	if !slices.Contains(words, text) {
		return nil, fmt.Errorf("want one of %s", strings.Join(words, ", "))
	}
	return text, nil
}

func level(text string) (l slog.Level, err error) {
	err = l.UnmarshalText([]byte(text))
	return l, err
}

func onOff(text string, words []string) (any, error) {
	_, err := oneOf(text, words)
	return text != "false" && text != "off", err
}

// number accepts whole numbers in plain notation; 010 could be meant as octal.
func number(text string, args []string) (any, error) {
	n, err := parseSize(text)
	least, most := bound(args[0]), bound(args[1])
	if err != nil || strconv.FormatInt(n, 10) != text || n < least || n > most {
		return nil, fmt.Errorf("want a whole number from %d to %d", least, most)
	}
	return int(n), nil
}

// units are the units of sizes: powers of 1000 by SI, of 1024 by IEC 80000-13. A letter alone is not a unit: systemd
// reads M as 1024², Kubernetes as 1000².
var units = map[string]int64{
	"": 1, "B": 1,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// parseSize parses a whole number of bytes, with or without a unit.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "BKMGTi")
	unit, known := units[text[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case !known, err != nil, n < 0, strconv.FormatInt(n, 10) != digits: // for example +1, or 010
		return 0, errors.New("want a size such as 20MiB, 1GiB, 500KB, or bytes")
	case n > math.MaxInt64/unit:
		return 0, errors.New("too large")
	}
	return n * unit, nil
}

// size accepts sizes within the limits, and 0.
func size(text string, args []string) (any, error) {
	least, most, zero := args[0], args[1], strings.Join(args[2:], " ")
	n, err := parseSize(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w; 0: %s", err, zero)
	case n != 0 && (n < bound(least) || n > bound(most)):
		return nil, fmt.Errorf("want a size from %s to %s, or 0: %s", least, most, zero)
	}
	return n, nil
}

// bound returns a size from a tag.
func bound(text string) int64 {
	n, _ := parseSize(text)
	return n
}

func duration(text string, args []string) (any, error) {
	want, most := "want a duration such as 12h or 30m", time.Duration(math.MaxInt64)
	zero := slices.Contains(args, "0")
	if zero {
		want += ", or 0 for off"
	} else if len(args) > 0 {
		most, _ = time.ParseDuration(args[0])
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return nil, errors.New(want)
	case d == 0 && zero:
	case d < 0:
		return nil, fmt.Errorf("negative, %s", want)
	case d < time.Second: // a wrong unit
		return nil, fmt.Errorf("shorter than %s, %s", time.Second, want)
	case d > most:
		return nil, fmt.Errorf("want at most %s", most)
	}
	return d, nil
}

// days parses days with package window, and suggests the intended day.
func days(text string) ([]time.Weekday, error) {
	found, err := window.ParseDays(text)
	if err == nil {
		return found, nil
	}
	for day := range strings.SplitSeq(text, "-") {
		meant := Nearest(day, window.DayNames())
		if _, wrong := window.ParseDays(day); wrong != nil && meant != "" {
			return nil, fmt.Errorf("%w; did you mean %q?", err, meant)
		}
	}
	return nil, err
}
