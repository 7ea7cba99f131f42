// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"path"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/manifests"
)

// errShell is a script whose effect on the program's start is not fully known.
const errShell = words("cannot read its shell command")

var shells = []string{"sh", "bash", "ash", "dash"}

// setters change variables.
var setters = []string{"export", "declare", "typeset", "readonly", "read", ".", "source", "eval", "set", "unset", "env"}

// wrappers start the program that follows them, with its flags.
var wrappers = []string{"exec", "nice", "ionice", "nohup", "tini", "dumb-init", "catatonit", "go-runner", "hyperkube"}

// arguments returns the words after the program in a container's command and arguments.
func (c container) arguments(env environment, program string) ([]string, error) {
	var line []string
	for _, word := range slices.Concat(c.Command, c.Args) {
		line = append(line, env.expand(word))
	}
	if len(line) == 0 || strings.HasPrefix(line[0], "-") {
		return line, nil // of the image's entrypoint
	}
	if !slices.Contains(shells, path.Base(line[0])) {
		return after(line, program)
	}
	at := slices.IndexFunc(line[1:], func(w string) bool { return !strings.HasPrefix(w, "-") }) + 1
	if at == 0 || !strings.HasSuffix(line[at-1], "c") || strings.HasPrefix(line[at-1], "--") {
		return nil, errShell // a script in a file
	}
	commands, err := env.script(line[at])
	if err != nil {
		return nil, err
	}
	var found [][]string
	for _, command := range commands {
		if arguments, err := after(command, program); err == nil {
			found = append(found, arguments)
		}
	}
	if len(found) != 1 || len(commands) > 1 && slices.ContainsFunc(commands, changesVariables) {
		return nil, errShell
	}
	return found[0], nil
}

// after returns the words after a program, at the start of a command or after a wrapper.
func after(command []string, program string) ([]string, error) {
	for n, word := range command {
		base := path.Base(word)
		isOld := n > 0 && path.Base(command[n-1]) == "hyperkube" && "kube-"+word == program
		if isOld || manifests.IsProgram(base, program) && !strings.HasSuffix(base, "-manager") { // kops' has other flags
			return command[n+1:], nil
		}
		if n == 0 && !slices.Contains(wrappers, base) {
			break
		}
	}
	return nil, words("its program is not " + program)
}

// changesVariables reports whether a command may change the variables of later commands.
func changesVariables(command []string) bool {
	first := path.Base(command[0])
	return slices.Contains(setters, first) || strings.Contains(command[0], "=")
}

// script splits a shell script into simple commands without redirections. Text that is not in the script (the output of
// another command) is unknown; quoting, comments and variables follow the shell.
func (e environment) script(text string) ([][]string, error) {
	s := scanner{env: e, text: text}
	for s.text != "" && s.err == nil {
		s.next()
	}
	s.endCommand()
	if s.err != nil || len(s.commands) > maxCommands {
		return nil, errShell
	}
	return s.commands, nil
}

// scanner reads a shell script.
type scanner struct {
	env      environment
	text     string // the rest
	word     strings.Builder
	isWord   bool // a word has begun, perhaps empty
	isTarget bool // the next word is the target of a redirection
	command  []string
	commands [][]string
	err      error
}

func (s *scanner) add(text string) {
	s.word.WriteString(text)
	s.isWord = true
}

func (s *scanner) endWord() {
	if s.isWord && !s.isTarget {
		s.command = append(s.command, s.word.String())
	}
	s.isTarget = s.isTarget && !s.isWord
	s.isWord = false
	s.word.Reset()
}

func (s *scanner) endCommand() {
	s.endWord()
	if len(s.command) > 0 {
		s.commands = append(s.commands, s.command)
	}
	if s.isTarget {
		s.err = errShell
	}
	s.command = nil
}

// next reads one character, or the construct that it starts.
func (s *scanner) next() {
	c := s.text[0]
	s.text = s.text[1:]
	switch c {
	case ' ', '\t':
		s.endWord()
	case '\n', ';', '|', '(', ')':
		s.endCommand()
	case '&':
		if s.isTarget && !s.isWord { // 2>&1
			s.add("&")
			return
		}
		s.endCommand()
	case '<', '>':
		s.redirect()
	case '#':
		if s.isWord {
			s.add("#")
			return
		}
		_, rest, _ := strings.Cut(s.text, "\n")
		s.text = "\n" + rest
	case '\'':
		s.add(s.until('\''))
	case '"':
		s.quoted()
	case '\\':
		s.escape("")
	case '$':
		s.dollar(false)
	case '`', '*', '?', '[', '{', '}', '~', '!':
		s.special(c)
	default:
		s.add(string(c))
	}
}

// special handles a character with a special meaning in some places: there the script is rejected.
func (s *scanner) special(c byte) {
	switch {
	case c == '`':
		s.until('`')
		s.add(unknown)
	case !s.isWord && strings.IndexByte("[{}!", c) >= 0: // a command: [ -f x ]
		s.add(string(c))
	default:
		s.add(unknown)
	}
}

// until returns the text up to a character, and skips that.
func (s *scanner) until(end byte) string {
	before, rest, found := strings.Cut(s.text, string(end))
	if !found {
		s.err = errShell
	}
	s.text = rest
	return before
}

// redirect skips a redirection: a number before it, and the word after it.
func (s *scanner) redirect() {
	if strings.Trim(s.word.String(), "0123456789") == "" {
		s.word.Reset()
		s.isWord = false
	}
	s.endWord()
	if strings.HasPrefix(s.text, "<") || strings.HasPrefix(s.text, "(") { // a here-document, a process substitution
		s.err = errShell
	}
	s.text = strings.TrimPrefix(s.text, ">")
	s.isTarget = true
}

// quoted reads the text between double quotes.
func (s *scanner) quoted() {
	s.add("")
	for s.text != "" {
		c := s.text[0]
		s.text = s.text[1:]
		switch c {
		case '"':
			return
		case '\\':
			s.escape("$`\"\\\n")
		case '$':
			s.dollar(true)
		case '`':
			s.until('`')
			s.add(unknown)
		default:
			s.add(string(c))
		}
	}
	s.err = errShell
}

// escape reads the character after a backslash, which is kept if only some characters can be escaped.
func (s *scanner) escape(only string) {
	if s.text == "" {
		s.err = errShell
		return
	}
	c := s.text[:1]
	if only != "" && !strings.Contains(only, c) {
		s.add("\\")
		return
	}
	s.text = s.text[1:]
	if c != "\n" { // continues the line
		s.add(c)
	}
}

// dollar reads a variable, which becomes several words if it has spaces and is not quoted; all other dollar constructs
// are unknown.
func (s *scanner) dollar(isQuoted bool) {
	name := s.text[:len(s.text)-len(strings.TrimLeft(s.text, letters))]
	isBraced := false
	if inner, rest, found := strings.Cut(strings.TrimPrefix(s.text, "{"), "}"); strings.HasPrefix(s.text, "{") && found {
		name, s.text, isBraced = inner, rest, true
	}
	if !isBraced {
		s.text = s.text[len(name):]
	}
	value, known := s.env[name]
	switch {
	case known && isQuoted:
		s.add(value)
	case known:
		s.split(value)
	case name == "" && strings.HasPrefix(s.text, "("):
		s.substitution()
	case name == "" && s.text != "": // $@, $1
		s.text = s.text[1:]
		s.add(unknown)
	default:
		s.add(unknown)
	}
}

// split adds the words of a variable.
func (s *scanner) split(value string) {
	if strings.ContainsAny(value, "*?[") {
		value = unknown
	}
	if strings.TrimLeft(value, " \t\n") != value {
		s.endWord()
	}
	for n, word := range strings.Fields(value) {
		if n > 0 {
			s.endWord()
		}
		s.add(word)
	}
	if strings.TrimRight(value, " \t\n") != value {
		s.endWord()
	}
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// substitution skips the command of $( ), which may contain others.
func (s *scanner) substitution() {
	depth := 0
	for n, c := range s.text {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			s.text = s.text[n+1:]
			s.add(unknown)
			return
		}
	}
	s.err = errShell
}
