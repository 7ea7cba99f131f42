// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Problem is one problem of a configuration.
type Problem struct {
	Place   string `json:"place"` // a file, or the environment variable; empty if there is no single place
	Line    int    `json:"line"`  // 0 if there is none
	Problem string `json:"problem"`
	cause   error
}

func (p Problem) Error() string {
	return strings.TrimPrefix(origin(p.Place, p.Line)+": "+p.Problem, ": ")
}

func (p Problem) Unwrap() error { return p.cause }

// origin returns the place of a value. Line 0 is a place without lines.
func origin(place string, line int) string {
	return strings.TrimSuffix(place+":"+strconv.Itoa(line), ":0")
}

// problems are the error of Load, in order: one line each.
type problems []Problem

// maxProblems limits a report: a file with more is not a configuration.
const maxProblems = 20

func (p problems) Error() string {
	var lines []string
	for _, one := range ProblemsOf(p) {
		lines = append(lines, one.Error())
	}
	return strings.Join(lines, "\n")
}

// Is reports whether target is the cause of a problem.
func (p problems) Is(target error) bool {
	return slices.ContainsFunc(p, func(one Problem) bool { return errors.Is(one.cause, target) })
}

// ProblemsOf returns the problems of an error of Load, in order. Any other error becomes one problem.
func ProblemsOf(err error) []Problem {
	found, is := errors.AsType[problems](err)
	switch more := len(found) - maxProblems; {
	case more > 0:
		return append(found[:maxProblems:maxProblems], Problem{Problem: fmt.Sprintf("and %d more", more)})
	case !is && err != nil:
		return []Problem{{Problem: err.Error()}}
	}
	return found
}

// Entry is one merged value and its origin.
type Entry struct {
	// Key has the form "log.level", "manage[0]", "values.sles12/velum" or "repositories[0].deny[1]".
	Key    string `json:"key"`
	Value  string `json:"value"`  // as written, without the root
	Origin string `json:"origin"` // "file:line", "environment NAME" or "default"
}

// Entries lists the merged values in the order of the settings. Empty values, such as a list without items, have no
// entry.
func (c *Config) Entries() []Entry { return entries("", c.shown) }

func entries(path string, node *yaml.Node) []Entry {
	var found []Entry
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(node.Content); i += 2 {
			found = append(found, entries(join(path, node.Content[i].Value), node.Content[i+1])...)
		}
	case yaml.SequenceNode:
		for i, item := range node.Content {
			found = append(found, entries(fmt.Sprintf("%s[%d]", path, i), item)...)
		}
	default:
		found = append(found, Entry{Key: path, Value: node.Value, Origin: node.LineComment})
	}
	return found
}

// YAML returns the merged configuration as one file, each value with its origin in a comment. It can be read back to
// the same Settings.
func (c *Config) YAML() ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := encoder.Encode(c.shown)
	return out.Bytes(), err
}
