// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/rogpeppe/go-internal/diff"
	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// Equal reports whether kubelet sees the same pod in both files. Kubelet computes the pod's UID from the file's path
// and the decoded pod (kubelet's config/common.go), so comments, key order, quoting, white space and later documents
// restart nothing. Equal may return false for two spellings of one value (0x10 and 16, null and absent).
func Equal(a, b *File) bool {
	return reflect.DeepEqual(decoded(a.yaml.Documents[0]), decoded(b.yaml.Documents[0]))
}

// scalar is a value compared by its spelling.
type scalar struct{ tag, value string }

// decoded returns a node as plain values, with aliases followed and merge keys applied. yamledit.MaxNodes limits its
// size.
func decoded(n *yaml.Node) any {
	n = yamledit.Resolve(n)
	switch n.Kind {
	case yaml.DocumentNode:
		return decoded(n.Content[0])
	case yaml.MappingNode:
		m := make(map[any]any, len(n.Content)/2)
		for _, f := range yamledit.Fields(n) {
			m[decodedScalar(yamledit.Resolve(f.Key))] = decoded(f.Value)
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = decoded(item)
		}
		return list
	}
	return decodedScalar(n)
}

func decodedScalar(n *yaml.Node) any {
	tag := n.ShortTag()
	switch {
	case tag == "!!null":
		return nil
	case tag == "!!bool" && n.Style == 0:
		return scalar{tag, fmt.Sprint(n.Value[0] == 't' || n.Value[0] == 'T')}
	case tag == "!!str" && n.Style == 0 && (isYes(n.Value) || isNo(n.Value)):
		return scalar{"!!bool", n.Value}
	}
	return scalar{tag, n.Value}
}

// isYes and isNo match the words that are booleans in YAML 1.1, which kubelet's parser follows, and strings in YAML 1.2
// (https://yaml.org/type/bool.html).
func isYes(s string) bool {
	return slices.Contains([]string{"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"}, s)
}

func isNo(s string) bool {
	return slices.Contains([]string{"n", "N", "no", "No", "NO", "off", "Off", "OFF"}, s)
}

// Diff returns the unified diff of two files, "" if they are equal.
func Diff(nameA, nameB string, a, b []byte) string {
	return string(diff.Diff(nameA, a, nameB, b))
}
