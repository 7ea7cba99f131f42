// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/lazyregexp"
)

// yamlLine matches the position in yaml.v3's errors.
var yamlLine = lazyregexp.New(`^(?:yaml: )?(?:line (\d+): )?`)

// unknownAnchor matches yaml.v3's error of an alias without an anchor, which has no position.
var unknownAnchor = lazyregexp.New(`^unknown anchor '(.+)' referenced$`)

// fromParser are the problems that yaml.v3's parser finds, in the tokens of its scanner. yaml.v3 counts their lines
// from 0, and those of the scanner from 1.
var fromParser = []string{
	"did not find expected <stream-start>", "did not find expected <document start>",
	"did not find expected node content", "did not find expected '-' indicator", "did not find expected key",
	"did not find expected ',' or ']'", "did not find expected ',' or '}'", "found undefined tag handle",
	"found duplicate %YAML directive", "found incompatible YAML document", "found duplicate %TAG directive",
}

// SyntaxError returns yaml.v3's error about data with the line in data, which yaml.v3 counts from 0 or omits.
func SyntaxError(data []byte, err error) *Error {
	if text, is := errors.AsType[*Error](checkText(data)); is {
		return text
	}
	at := yamlLine().FindStringSubmatch(err.Error())
	problem := strings.TrimPrefix(err.Error(), at[0])
	line := 1 // yaml.v3 omits the number of the first line
	if number, err := strconv.Atoi(at[1]); err == nil {
		line = number
		if slices.Contains(fromParser, problem) {
			line++
		}
	}
	if name := unknownAnchor().FindStringSubmatch(problem); name != nil {
		line = aliasLine(data, name[1])
	}
	return &Error{Line: min(line, lastLine(data)), Problem: problem}
}

// lastLine returns the last line with text: a file that ends too early has its problem there.
func lastLine(data []byte) int { return len(lineStarts(bytes.TrimRight(data, " \t\r\n"))) }

// aliasLine returns the line of the first alias of this name; 1 if there is none.
func aliasLine(data []byte, name string) int {
	alias := regexp.MustCompile(`(?m)(?:^|[\s,:\[{-])(\*)` + regexp.QuoteMeta(name) + `(?:[\s,\]}]|$)`)
	at := alias.FindSubmatchIndex(data)
	if at == nil {
		return 1
	}
	return len(lineStarts(data[:at[2]]))
}
