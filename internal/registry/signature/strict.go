// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// unmarshal parses unambiguous JSON: one value, and no object with two keys that Go treats as equal. Unless open is
// set, it rejects keys that v does not have.
func unmarshal(data []byte, v any, open bool) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if err := unambiguous(d, 0); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("json: more than one value")
	}
	d = json.NewDecoder(bytes.NewReader(data))
	if !open {
		d.DisallowUnknownFields()
	}
	return d.Decode(v)
}

// unambiguous reads one value and compares the keys of each object case-insensitively, as Go does.
func unambiguous(d *json.Decoder, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("json: over %d levels", maxDepth)
	}
	token, err := d.Token()
	if err != nil {
		return fmt.Errorf("json: %w", err)
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	keys := map[string]bool{}
	for d.More() {
		if delim == '{' {
			name, err := d.Token()
			if err != nil {
				return fmt.Errorf("json: %w", err)
			}
			folded := strings.ToLower(strings.ToUpper(fmt.Sprint(name)))
			if keys[folded] {
				return fmt.Errorf("json: ambiguous: two keys %q", outside.Text(folded))
			}
			keys[folded] = true
		}
		if err := unambiguous(d, depth+1); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("json: %w", err)
	}
	return nil
}
