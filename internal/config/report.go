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

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Place   string `json:"place"` // a file, or the environment's variable; empty: of no single place
	Line    int    `json:"line"`  // 0: none
	Problem string `json:"problem"`
	cause   error
}

func (p Problem) Error() string {
	return strings.TrimPrefix(origin(p.Place, p.Line)+": "+p.Problem, ": ")
}

// origin is where a value was written. Line 0 is a place without lines.
func origin(place string, line int) string {
	return strings.TrimSuffix(place+":"+strconv.Itoa(line), ":0")
}

// problems are the error of Load, in the order found: a line for each.
type problems []Problem

// maxProblems bounds a report: what has more is not a configuration.
const maxProblems = 20

func (p problems) Error() string {
	var lines []string
	for _, one := range ProblemsOf(p) {
		lines = append(lines, one.Error())
	}
	return strings.Join(lines, "\n")
}

// Is finds the cause of one of them.
func (p problems) Is(target error) bool {
	return slices.ContainsFunc(p, func(one Problem) bool { return errors.Is(one.cause, target) })
}

// ProblemsOf lists what an error of Load is about, in the order found. Of any other error it makes one problem.
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

// Entry is one merged value and where it comes from.
type Entry struct {
	// Key is as "log.level", "manage[0]", "values.sles12/velum" or "repositories[0].deny[1]".
	Key    string `json:"key"`
	Value  string `json:"value"`  // as written, without the root
	Origin string `json:"origin"` // "file:line", "environment NAME" or "default"
}

// Entries lists the merged values in the order of the settings. What is empty, such as a list without items, has no
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

// YAML gives the merged configuration as one file, each value with its origin in a comment. Read again, it gives the
// same Settings.
func (c *Config) YAML() ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := encoder.Encode(c.shown)
	return out.Bytes(), err
}
