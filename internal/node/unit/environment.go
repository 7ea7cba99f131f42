// SPDX-License-Identifier: Apache-2.0

package unit

import "strings"

// parseEnvironment reads an EnvironmentFile (src/basic/env-file.c, parse_env_file_internal). Quotes count only at the
// start of a value, and after another quote; a backslash at the end of a line continues it.
func parseEnvironment(text string) map[string]string {
	env := map[string]string{}
	for text != "" {
		text = strings.TrimLeft(text, space)
		var line string
		if strings.HasPrefix(text, "#") || strings.HasPrefix(text, ";") {
			line, text = cutLine(text)
			for isOpen(line) && text != "" {
				line, text = cutLine(text)
			}
			continue
		}
		if text == "" {
			break
		}
		end := 1 + strings.IndexAny(text[1:], "="+breaks) // the first byte is the key's, even if it is =
		if end == 0 {
			break
		}
		key := strings.TrimRight(text[:end], space)
		isSet := text[end] == '='
		if text = text[end+1:]; !isSet {
			continue
		}
		var value string
		if value, text = environmentValue(text); isVariable(key) {
			env[key] = value
		}
	}
	return env
}

// breaks end a line.
const breaks = "\r\n"

func cutLine(text string) (line, rest string) {
	end := strings.IndexAny(text, breaks)
	if end < 0 {
		return text, ""
	}
	return text[:end], text[end+1:]
}

// isVariable reports whether a text is a valid name of a variable.
func isVariable(name string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	return strings.IndexAny(name, letters) == 0 && strings.Trim(name, letters+"0123456789") == ""
}

// environmentValue reads a value, and returns the text after its line.
func environmentValue(text string) (value, rest string) {
	var b strings.Builder
	for {
		text = strings.TrimLeft(text, " \t")
		switch {
		case text == "":
			return b.String(), ""
		case strings.IndexByte(breaks, text[0]) >= 0:
			return b.String(), text[1:]
		case text[0] == '\'':
			var quoted string
			quoted, text, _ = strings.Cut(text[1:], "'")
			b.WriteString(quoted)
		case text[0] == '"':
			text = doubleQuoted(&b, text[1:])
		default:
			plain, rest := plainValue(text)
			b.WriteString(plain)
			return b.String(), rest
		}
	}
}

// doubleQuoted writes a quoted text, and returns the text after its quote.
func doubleQuoted(b *strings.Builder, text string) (rest string) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return text[i+1:]
		case c != '\\' || i+1 == len(text):
			b.WriteByte(c)
		default:
			if i++; strings.IndexByte("\"\\`$"+breaks, text[i]) < 0 {
				b.WriteByte('\\')
			}
			if strings.IndexByte(breaks, text[i]) < 0 {
				b.WriteByte(text[i])
			}
		}
	}
	return ""
}

// plainValue reads an unquoted value to the end of its line, without trailing white space that is not escaped.
func plainValue(text string) (value, rest string) {
	var b strings.Builder
	kept := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case strings.IndexByte(breaks, c) >= 0:
			return b.String()[:kept], text[i+1:]
		case c == '\\' && i+1 < len(text):
			if i++; strings.IndexByte(breaks, text[i]) < 0 {
				b.WriteByte(text[i])
			}
			kept = b.Len()
		default:
			b.WriteByte(c)
			if !strings.ContainsRune(space, rune(c)) {
				kept = b.Len()
			}
		}
	}
	return b.String()[:kept], ""
}
