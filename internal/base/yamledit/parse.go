// SPDX-License-Identifier: Apache-2.0

// Package yamledit edits YAML and JSON files without rewriting them: it finds the nodes of a parsed file as byte ranges
// in the original bytes, and splices replacements in. Every byte outside an edit is kept: comments, order, quoting,
// indentation, line ends, byte order mark.
//
// Words:
//
//   - File: the bytes together with the checked node trees of their documents.
//   - Offset: a position in those bytes, from 0. Lines and columns count from 1
//     as in yaml.v3: columns are characters, not bytes, and a byte order mark at
//     the head of the file has none.
//   - Edit: a byte range and its replacement.
//   - Entry: a top-level key with its value, as whole lines.
//
// Promises: input is limited (MaxBytes, MaxDepth, MaxDocs, and MaxNodes with every alias expanded), duplicate keys and
// merge keys that parsers read differently are errors, and a range is only returned after its bytes were checked to
// decode to the node's value. The package does not read or write files.
//
// Why edits and not an encoder: the files belong to packages, admins and Salt. Writing them back with a parser would
// touch every line, and lose comments, order, quoting and line ends.
package yamledit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

// Limits of Parse. Real pod manifests are below 32 KiB, 20 levels and 2,000 nodes; the limits keep a hostile or broken
// file from taking more than a fraction of a second.
const (
	MaxBytes = 1 << 20 // size of the file
	MaxDepth = 64      // nested nodes, aliases followed
	MaxNodes = 100_000 // nodes of the whole file, aliases expanded
	MaxDocs  = 256     // documents of the file; kubelet reads the first
)

const bom = "\uFEFF"

// Error is a defect of the input at a place.
type Error struct {
	Line    int    // from 1
	Problem string // lower case, without the line
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Problem) }

// ErrorAt returns an *Error at a node.
func ErrorAt(n *yaml.Node, format string, args ...any) error {
	return &Error{Line: n.Line, Problem: fmt.Sprintf(format, args...)}
}

// File is a parsed file. It keeps the slice that was parsed; neither the bytes nor the trees may change while ranges
// are in use.
type File struct {
	// Documents has one yaml.DocumentNode per document; an empty file has none.
	Documents []*yaml.Node

	data  []byte
	lines []int // offset of each line's first character, after a byte order mark
	json  bool  // read by ParseJSON
}

// Parse parses all documents of data and checks them against the package's promises. Every error is about the input; if
// it has a place it is an *Error.
func Parse(data []byte) (*File, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%d bytes: larger than the limit of %d", len(data), MaxBytes)
	}
	if err := checkText(data); err != nil {
		return nil, err
	}
	f := &File{data: data, lines: lineStarts(data)}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	check := checker{anchored: map[*yaml.Node]measure{}, keys: map[string]*yaml.Node{}}
	for {
		doc := new(yaml.Node)
		err := dec.Decode(doc)
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, SyntaxError(data, err)
		}
		if err := check.document(doc); err != nil {
			return nil, err
		}
		if f.Documents = append(f.Documents, doc); len(f.Documents) > MaxDocs {
			return nil, ErrorAt(doc, "more than %d documents", MaxDocs)
		}
	}
}

// checkText rejects what YAML's reader would reject, but names the line.
func checkText(data []byte) error {
	if bytes.HasPrefix(data, []byte("\xFE\xFF")) || bytes.HasPrefix(data, []byte("\xFF\xFE")) {
		return &Error{Line: 1, Problem: "encoded as UTF-16; save the file as UTF-8"}
	}
	line := 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return &Error{Line: line, Problem: fmt.Sprintf("byte 0x%02x is not valid UTF-8", data[i])}
		case r == '\n':
			line++
		case isControl(r):
			return &Error{Line: line, Problem: fmt.Sprintf("control character %U", r)}
		}
		i += size
	}
	return nil
}

// isControl reports a character outside YAML's c-printable (https://yaml.org/spec/1.2.2/#51-character-set).
func isControl(r rune) bool {
	switch {
	case r == '\t', r == '\n', r == '\r', r == 0x85:
		return false
	case r < 0x20, r >= 0x7F && r < 0xA0, r == 0xFFFE, r == 0xFFFF:
		return true
	}
	return false
}

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

// measure is the size of an anchored node, which counts wherever an alias repeats it.
type measure struct {
	nodes  int
	height int
}

// checker has the node count of a whole file; anchors end with their document.
type checker struct {
	anchored map[*yaml.Node]measure
	keys     map[string]*yaml.Node // scratch of one mapping
	nodes    int
}

func (c *checker) document(doc *yaml.Node) error {
	for _, n := range doc.Content {
		m, err := c.visit(n, 1)
		if err != nil {
			return err
		}
		c.nodes += m.nodes
		if c.nodes > MaxNodes {
			return ErrorAt(n, "more than %d nodes", MaxNodes)
		}
	}
	clear(c.anchored)
	return nil
}

// visit checks n at the given depth and returns its size.
func (c *checker) visit(n *yaml.Node, depth int) (measure, error) {
	if depth > MaxDepth {
		return measure{}, ErrorAt(n, "nested deeper than %d levels", MaxDepth)
	}
	if n.Kind == yaml.AliasNode {
		return c.alias(n, depth)
	}
	if n.Kind == yaml.MappingNode {
		if err := c.mappingKeys(n); err != nil {
			return measure{}, err
		}
	}
	sum := measure{nodes: 1}
	for _, child := range n.Content {
		m, err := c.visit(child, depth+1)
		if err != nil {
			return measure{}, err
		}
		sum.nodes += m.nodes
		sum.height = max(sum.height, m.height+1)
		if sum.nodes > MaxNodes {
			return measure{}, ErrorAt(child, "more than %d nodes, aliases expanded", MaxNodes)
		}
	}
	if n.Anchor != "" {
		c.anchored[n] = sum
	}
	if n.Kind == yaml.MappingNode {
		return sum, checkMerge(n)
	}
	return sum, nil
}

func (c *checker) alias(n *yaml.Node, depth int) (measure, error) {
	m, complete := c.anchored[n.Alias]
	if !complete {
		return measure{}, ErrorAt(n, "alias *%s lies inside its own anchor", n.Value)
	}
	if depth+m.height > MaxDepth {
		return measure{}, ErrorAt(n, "alias *%s: nested deeper than %d levels", n.Value, MaxDepth)
	}
	return m, nil
}

// mappingKeys requires scalar keys without duplicates: parsers disagree on which duplicate counts, so an edit would
// have to guess.
func (c *checker) mappingKeys(m *yaml.Node) error {
	clear(c.keys)
	for i := 0; i < len(m.Content); i += 2 {
		key := m.Content[i]
		target := Resolve(key)
		if target.Kind != yaml.ScalarNode {
			return ErrorAt(key, "a key that is not a scalar")
		}
		if first, ok := c.keys[target.Value]; ok {
			return ErrorAt(key, "duplicate key %q, first on line %d", target.Value, first.Line)
		}
		c.keys[target.Value] = key
	}
	return nil
}

// checkMerge requires mappings as a merge key's value, and no key before it that it also provides: there yaml.v2
// (kubelet) uses the merged value, and YAML's definition (https://yaml.org/type/merge.html) and yaml.v3 the explicit
// one.
func checkMerge(m *yaml.Node) error {
	for i := 0; i < len(m.Content); i += 2 {
		if !isMerge(m.Content[i]) {
			continue
		}
		sources, ok := mergeSources(m.Content[i+1])
		if !ok {
			return ErrorAt(m.Content[i], "merge key: the value is neither a mapping nor a list of mappings")
		}
		before := keysBefore(m, i)
		for _, source := range sources {
			for _, field := range Fields(source) {
				if key := before[Resolve(field.Key).Value]; key != nil {
					return ErrorAt(key, "key %q comes before a merge key that also has it; "+
						"parsers disagree which counts", Resolve(key).Value)
				}
			}
		}
	}
	return nil
}

func keysBefore(m *yaml.Node, end int) map[string]*yaml.Node {
	keys := make(map[string]*yaml.Node, end/2)
	for i := 0; i < end; i += 2 {
		keys[Resolve(m.Content[i]).Value] = m.Content[i]
	}
	return keys
}
