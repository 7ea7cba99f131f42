// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// expand splits the command into words, then replaces specifiers, then variables.
func (r *reader) expand() (out []string) {
	words, _ := split(protectSemicolons(r.command), true)
	if len(words) == 0 {
		return nil
	}
	program := strings.TrimLeft(words[0], "@-:+!|")
	prefixes := words[0][:len(words[0])-len(program)]
	for _, word := range words[1:] {
		if word == ";" {
			r.problem("%s: several commands in one line", r.File)
			break
		}
		word = r.specifiers(strings.TrimPrefix(word, protected))
		if strings.Contains(prefixes, ":") {
			out = append(out, word)
		} else {
			out = append(out, r.variables(word)...)
		}
	}
	if strings.Contains(prefixes, "@") && len(out) > 0 {
		out = out[1:] // argv[0]
	}
	return append([]string{r.specifiers(program)}, out...)
}

// protected marks a semicolon that is an argument. A unit contains no zero byte.
const protected = "\x00"

// semicolon matches an argument of one semicolon, escaped so that it does not end the command.
var semicolon = lazyregexp.New(`(\s)\\;(\s|$)`)

func protectSemicolons(command string) string {
	for range 2 { // two that share a space are matched in two rounds
		command = semicolon().ReplaceAllString(command, "${1}"+protected+";${2}")
	}
	return command
}

// variable matches a variable in a word, or an escaped dollar sign.
var variable = lazyregexp.New(`\$\$|\$\{[^}]*\}`)

// variables substitutes variables. $NAME alone becomes the words of its value, ${NAME} a part of one word
// (src/basic/env-util.c, replace_env_argv).
func (r *reader) variables(word string) []string {
	if name, is := strings.CutPrefix(word, "$"); is && !strings.HasPrefix(name, "{") && !strings.HasPrefix(name, "$") {
		words, _ := split(r.env[name], false)
		return words
	}
	return []string{variable().ReplaceAllStringFunc(word, func(v string) string {
		if v == "$$" {
			return "$"
		}
		return r.env[v[2:len(v)-1]]
	})}
}

// specifier matches a specifier of systemd.unit(5), "SPECIFIERS".
var specifier = lazyregexp.New(`%[a-zA-Z%]`)

// specifiers replaces those that depend on the unit's name.
func (r *reader) specifiers(word string) string {
	name := strings.TrimSuffix(r.name, ".service")
	known := map[string]string{"%%": "%", "%n": r.name, "%N": name, "%p": name, "%P": name, "%i": "", "%I": ""}
	return specifier().ReplaceAllStringFunc(word, func(s string) string {
		value, is := known[s]
		if !is {
			r.problem("%s: %s in %s is unknown", r.File, s, outside.Line(word, 128))
			return s
		}
		return value
	})
}
