// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
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

// inBlocks are the problems for which yaml.v3 names the beginning of the block, unless that is the first line.
var inBlocks = []string{"did not find expected key", "did not find expected '-' indicator"}

// SyntaxError returns yaml.v3's error about data with the line in data, which yaml.v3 counts from 0 or omits.
func SyntaxError(data []byte, err error) *Error {
	if text, is := errors.AsType[*Error](checkText(data)); is {
		return text
	}
	line, problem := placeOf(err)
	if name := unknownAnchor().FindStringSubmatch(problem); name != nil {
		// The name may be a password without its quotes.
		line, problem = aliasLine(data, name[1]), "an alias without its anchor: put a text that begins with * in quotes"
	}
	if slices.Contains(inBlocks, problem) {
		line = lineInBlock(data, line, problem)
	}
	return &Error{Line: min(line, lastLine(data)), Problem: problem}
}

// placeOf splits yaml.v3's error.
func placeOf(err error) (line int, problem string) {
	at := yamlLine().FindStringSubmatch(err.Error())
	problem = strings.TrimPrefix(err.Error(), at[0])
	line, err = strconv.Atoi(at[1])
	switch {
	case err != nil:
		return 1, problem // yaml.v3 omits the number of the first line
	case slices.Contains(fromParser, problem):
		line++
	}
	return line, problem
}

// lineInBlock returns the line of a problem in a block. It parses the text from the block's first line on, so that
// yaml.v3 names the problem's line. It returns the block's line if that text has another problem, for example an alias
// without its anchor.
func lineInBlock(data []byte, block int, problem string) int {
	starts := lineStarts(data)
	if block > len(starts) {
		return block
	}
	var doc yaml.Node
	err := yaml.Unmarshal(data[starts[block-1]:], &doc)
	if err == nil {
		return block
	}
	line, same := placeOf(err)
	if same != problem {
		return block
	}
	return block - 1 + line
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
