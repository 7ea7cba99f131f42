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
