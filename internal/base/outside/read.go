// SPDX-License-Identifier: Apache-2.0

package outside

import (
	"errors"
	"fmt"
	"io"
)

// ErrTooLarge: data from outside has more bytes or entries than the caller accepts.
var ErrTooLarge = errors.New("too large")

// ReadAll reads r to its end; it returns ErrTooLarge after limit bytes.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: over %d bytes", ErrTooLarge, limit)
	}
	return data, nil
}
