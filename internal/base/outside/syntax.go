// SPDX-License-Identifier: Apache-2.0

package outside

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Syntax returns the error of a parser as "not TOML: line 3, column 5", without the parser's words: they quote the
// file, which may have passwords at every place, in forms that Mask cannot know. format is what the file should be.
func Syntax(format string, err error) error {
	var toml interface{ Position() (line, column int) }
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &toml):
		line, column := toml.Position()
		return fmt.Errorf("not %s: line %d, column %d", format, line, column)
	case errors.As(err, &syntax):
		return fmt.Errorf("not %s: byte %d", format, syntax.Offset)
	default:
		return errors.New("not " + format)
	}
}
