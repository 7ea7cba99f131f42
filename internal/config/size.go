// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units are those of sizes: powers of 1000 by SI, of 1024 by IEC 80000-13.
// A letter alone is none of them: systemd reads M as 1024², Kubernetes as 1000².
var units = map[string]int64{
	"": 1, "B": 1,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

var errSize = errors.New("want a size such as 20MiB, 1GiB, 500KB, or bytes")

// parseSize reads a whole number of bytes, with or without a unit.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "BKMGTi")
	unit, known := units[text[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case !known, err != nil, n < 0, strconv.FormatInt(n, 10) != digits: // such as +1, or 010
		return 0, errSize
	case n > math.MaxInt64/unit:
		return 0, errors.New("more bytes than there are")
	}
	return n * unit, nil
}

// size takes 0, which says zero, and what lies in the bounds. least and most are
// sizes themselves.
func size(zero, least, most string) check {
	bottom, top := mustSize(least), mustSize(most)
	return func(text string) error {
		n, err := parseSize(text)
		switch {
		case err != nil:
			return fmt.Errorf("%w; 0: %s", err, zero)
		case n != 0 && (n < bottom || n > top):
			return fmt.Errorf("want a size from %s to %s, or 0: %s", least, most, zero)
		}
		return nil
	}
}

// mustSize is for the sizes of the schema.
func mustSize(text string) int64 {
	n, err := parseSize(text)
	if err != nil {
		panic(fmt.Sprintf("%q: %v", text, err))
	}
	return n
}
