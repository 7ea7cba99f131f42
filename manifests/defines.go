// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// NotPodError is the error for a file that kubelet ignores because it has no Pod: another kind, a list, or nothing.
type NotPodError struct{ Err error }

func (e *NotPodError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *NotPodError) Unwrap() error { return e.Err }

// Defines returns "namespace/name" of the pod that kubelet reads from a file; "" if there is none. It also accepts
// files that Parse rejects and kubelet accepts: of a duplicate key kubelet uses the last one, and it reads only the
// first document (pkg/kubelet/config/common.go, tryDecodeSinglePod).
func Defines(data []byte) string {
	var name, namespace string
	switch file, err := Parse(data); {
	case err == nil:
		return file.ID()
	case len(data) > yamledit.MaxBytes:
		return ""
	case isJSON(data):
		name, namespace = definedByJSON(data)
	default:
		name, namespace = definedByYAML(data)
	}
	if name == "" {
		return ""
	}
	return podID(namespace, name)
}

// ID returns "namespace/name": kubelet runs one pod of each.
func (p Pod) ID() string { return podID(p.Namespace, p.Name) }

func podID(namespace, name string) string {
	if namespace == "" {
		namespace = "default"
	}
	return namespace + "/" + name
}

// isJSON reports whether the file starts with a brace. Kubelet reads such a file with a JSON decoder
// (k8s.io/apimachinery/pkg/util/yaml.IsJSONBuffer), not as a YAML flow mapping.
func isJSON(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeftFunc(data, unicode.IsSpace), []byte("{"))
}

func definedByJSON(data []byte) (name, namespace string) {
	var pod, metadata lastJSON
	if json.Unmarshal(data, &pod) != nil || !pod.isPod() {
		return "", ""
	}
	for _, part := range pod["metadata"] {
		if json.Unmarshal(part, &metadata) != nil {
			return "", ""
		}
	}
	return metadata.text("name"), metadata.text("namespace")
}

// lastJSON holds the values of each key in order. Kubelet's decoder merges the fields of objects under a duplicate key.
// Unlike encoding/json it is case-sensitive.
type lastJSON map[string][]json.RawMessage

// UnmarshalJSON adds the object's keys.
func (l *lastJSON) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if begin, err := dec.Token(); err != nil || begin != json.Delim('{') {
		return err // null, or not an object
	}
	if *l == nil {
		*l = lastJSON{}
	}
	for dec.More() {
		var value json.RawMessage
		key, err := dec.Token()
		if err = errors.Join(err, dec.Decode(&value)); err != nil {
			return err
		}
		if name, is := key.(string); is {
			(*l)[name] = append((*l)[name], value)
		}
	}
	return nil
}

// isPod reports whether kubelet may accept the object as a Pod. Keys are case-sensitive except for the kind, which
// kubelet reads with encoding/json (k8s.io/apimachinery/pkg/runtime/serializer/json, Interpret).
func (l lastJSON) isPod() bool {
	for key := range l {
		if strings.EqualFold(key, "kind") && l.text(key) == "Pod" {
			return true
		}
	}
	return false
}

// text returns the last value of a key that is not null; "" if it is not a string.
func (l lastJSON) text(key string) (text string) {
	for _, value := range l[key] {
		_ = json.Unmarshal(value, &text) // ignores a value that is not a string
	}
	return text
}

func definedByYAML(data []byte) (name, namespace string) {
	root := firstDocument(data)
	if root == nil {
		return "", ""
	}
	if lastText(root, "kind") != "Pod" && !hasPodKind(root) {
		return "", ""
	}
	metadata := lastField(root, "metadata", mergeDepth)
	return lastText(metadata, "name"), lastText(metadata, "namespace")
}

// marker matches a line that begins like the end of a document.
var marker = lazyregexp.New(`(?:^|[\n\r\x{85}\x{2028}\x{2029}])(?:---|\.\.\.)`)

// maxMarkers is enough for directives, empty lines and the end of the first document.
const maxMarkers = 8

// firstDocument returns the root of the first document, or nil if no document can be read. Unlike kubelet, yaml.v3 also
// reads the beginning of the next document: if that is broken, firstDocument reads only the text before it.
func firstDocument(data []byte) *yaml.Node {
	ends := []int{len(data)}
	for _, at := range marker().FindAllIndex(data, maxMarkers) {
		if next, _ := utf8.DecodeRune(data[at[1]:]); at[1] == len(data) || unicode.IsSpace(next) {
			ends = append(ends, at[1]-len("---"))
		}
	}
	for _, end := range ends {
		var doc yaml.Node
		err := yaml.NewDecoder(bytes.NewReader(data[:end])).Decode(&doc)
		if err == nil && len(doc.Content) > 0 {
			return doc.Content[0]
		}
	}
	return nil
}

// hasPodKind reports whether a key equal to "kind" in any case has the value Pod: see isPod.
func hasPodKind(root *yaml.Node) bool {
	for i := 0; root.Kind == yaml.MappingNode && i+1 < len(root.Content); i += 2 {
		key, value := yamledit.Resolve(root.Content[i]), yamledit.Resolve(root.Content[i+1])
		if strings.EqualFold(key.Value, "kind") && value.Value == "Pod" {
			return true
		}
	}
	return false
}

// mergeDepth limits nested merge keys, because nothing has checked the file for cycles.
const mergeDepth = 8

func lastText(n *yaml.Node, name string) string {
	value := lastField(n, name, mergeDepth)
	return scalarText(value)
}

// scalarText returns the text of a scalar; "" for null, which kubelet treats as an absent field.
func scalarText(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return ""
	}
	return n.Value
}

// lastField returns the value of the last key with that name, including keys from merge keys.
func lastField(n *yaml.Node, name string, depth int) (value *yaml.Node) {
	n = yamledit.Resolve(n)
	if n == nil || n.Kind != yaml.MappingNode || depth == 0 {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch key := yamledit.Resolve(n.Content[i]); {
		case key.Value == name:
			value = yamledit.Resolve(n.Content[i+1])
		case key.ShortTag() == "!!merge" && value == nil:
			value = merged(n.Content[i+1], name, depth-1)
		}
	}
	return value
}

func merged(n *yaml.Node, name string, depth int) *yaml.Node {
	n = yamledit.Resolve(n)
	if n.Kind != yaml.SequenceNode {
		return lastField(n, name, depth)
	}
	for _, item := range n.Content {
		if value := lastField(item, name, depth); value != nil {
			return value
		}
	}
	return nil
}
