// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"slices"
)

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
