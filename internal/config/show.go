// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"

	"gopkg.in/yaml.v3"
)

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
