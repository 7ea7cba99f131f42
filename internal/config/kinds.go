// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/window"
	"github.com/kubic-project/image-update-agent/tags"
)

// kind makes a value of a text, or says what is wrong with it and what is allowed.
type kind func(text string, args []string) (any, error)

// kinds are what the tag `is` may say.
var kinds = map[string]kind{
	"bool":        onOff,
	"onoff":       onOff,    // the two words
	"oneof":       oneOf,    // the words
	"number":      number,   // least, most
	"size":        size,     // least, most, what 0 means
	"duration":    duration, // the most; 0: it may be off
	"level":       parsed(level),
	"updates":     parsed(tags.ParseChange),
	"dialect":     parsed(dialect),
	"time":        parsed(ParseTime),
	"days":        parsed(days),
	"timeofday":   parsed(window.ParseStart),
	"length":      parsed(window.ParseLength),
	"zone":        parsed(window.LoadZone),
	"image":       parsed(image),
	"podlist":     parsed(podList),
	"max":         func(string, []string) (any, error) { return tags.Tag{}, nil }, // read in the dialect of its entry
	"path":        checked(path),
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
	"reason":      checked(CheckReason),
	"lockserver":  checked(lockServer),
	"lockgroup":   checked(lockGroup),
}

// parsed is the kind that a function reads; with arguments, these are the words.
func parsed[T any](parse func(text string) (T, error)) kind {
	return func(text string, words []string) (any, error) {
		if _, err := oneOf(text, words); err != nil && len(words) > 0 {
			return nil, err
		}
		return parse(text)
	}
}

// checked is the kind of a text that stays one.
func checked(check func(text string) error) kind {
	return func(text string, _ []string) (any, error) { return text, check(text) }
}

func dialect(name string) (tags.Dialect, error) {
	if _, err := oneOf(name, tags.DialectNames()); err != nil {
		return tags.Core, err
	}
	return tags.ParseDialect(name)
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

// number takes whole numbers as people write them; 010 could be meant as an octal one.
func number(text string, args []string) (any, error) {
	n, err := parseSize(text)
	least, most := bound(args[0]), bound(args[1])
	if err != nil || strconv.FormatInt(n, 10) != text || n < least || n > most {
		return nil, fmt.Errorf("want a whole number from %d to %d", least, most)
	}
	return int(n), nil
}

// units are those of sizes: powers of 1000 by SI, of 1024 by IEC 80000-13. A letter alone is no unit: systemd reads M
// as 1024², Kubernetes as 1000².
var units = map[string]int64{
	"": 1, "B": 1,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// parseSize reads a whole number of bytes, with or without a unit.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "BKMGTi")
	unit, known := units[text[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case !known, err != nil, n < 0, strconv.FormatInt(n, 10) != digits: // such as +1, or 010
		return 0, errors.New("want a size such as 20MiB, 1GiB, 500KB, or bytes")
	case n > math.MaxInt64/unit:
		return 0, errors.New("more bytes than there are")
	}
	return n * unit, nil
}

// size takes what lies in the bounds, and 0.
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

// bound is a size in a tag.
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
	case d < time.Second: // a mistaken unit
		return nil, fmt.Errorf("shorter than %s, %s", time.Second, want)
	case d > most:
		return nil, fmt.Errorf("want at most %s", most)
	}
	return d, nil
}

// ParseTime reads a moment as people write it: RFC 3339, or the date alone, which is the midnight at its beginning on
// the node. One that is too late to be written in UTC is the latest that can be.
func ParseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t, err = time.ParseInLocation(time.DateOnly, text, time.Local)
	}
	if err != nil || t.Year() < 2000 { // before containers: a mistake; and the zero time means no end
		return time.Time{}, errors.New("want a time such as 2026-12-24T18:00:00+01:00, or a date such as 2026-12-24")
	}
	if writable := outside.Time(t); !writable.Equal(t) {
		return writable, nil
	}
	return t, nil
}

// days takes what window reads, and names the day that was meant.
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
