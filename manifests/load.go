// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"errors"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// File is a parsed pod manifest. It and its Data never change, so several goroutines may use it.
type File struct {
	Pod
	Data []byte

	yaml  *yamledit.File
	sites []site // parallel to Images
	uses  uses   // uses in the first document
}

// site is a place with an image. A node is nil if the file does not have it.
type site struct {
	owner  *yaml.Node // the mapping with the reference and the pull policy
	key    *yaml.Node // of the reference
	value  *yaml.Node // of the reference, as written: may be an alias
	merged bool       // the reference comes from a merge key's mapping
	rule   *yaml.Node // the key of the pull policy
	policy *yaml.Node // the pull policy, as written
}

// Parse reads a pod manifest. It returns an error for a file that kubelet would not run as one Pod: another kind, a
// List, no name, no containers, invalid JSON.
func Parse(data []byte) (*File, error) {
	read := yamledit.Parse
	if isJSON(data) {
		read = yamledit.ParseJSON
	}
	file, err := read(data)
	if err != nil {
		return nil, err
	}
	if len(file.Documents) == 0 {
		return nil, &NotPodError{errors.New("empty: no Pod in it")}
	}
	root := file.Documents[0].Content[0]
	f := &File{Data: data, yaml: file}
	if err := f.header(root); err != nil {
		return nil, err
	}
	for i, doc := range file.Documents {
		find := finder{File: f, document: i}
		if err := find.findImages(doc.Content[0]); err != nil && i == 0 {
			return nil, err
		}
	}
	f.judgeAnchors(root)
	spec, _ := yamledit.Get(root, "spec")
	f.serving(spec.Value)
	return f, nil
}

// header checks and reads the fields that make the document a static pod.
func (f *File) header(root *yaml.Node) error {
	if root.Kind != yaml.MappingNode {
		return &NotPodError{yamledit.ErrorAt(root, "not a Pod: the document is not a mapping")}
	}
	kind, version := text(root, "kind"), text(root, "apiVersion")
	switch {
	case kind == "List" || kind == "PodList":
		return &NotPodError{yamledit.ErrorAt(root, "kind %s: kubelet runs one Pod per file, not a list", kind)}
	case kind == "" && hasPodKind(root):
		return yamledit.ErrorAt(root, "not a Pod for the agent, and one for kubelet: write the key of its kind in lower case")
	case kind == "":
		return &NotPodError{yamledit.ErrorAt(root, "not a Pod: no kind")}
	case kind != "Pod":
		return &NotPodError{yamledit.ErrorAt(root, "kind %q: not a Pod", kind)}
	case version != "v1":
		return yamledit.ErrorAt(root, "apiVersion %q: want v1", version)
	}
	metadata, _ := yamledit.Get(root, "metadata")
	f.Name, f.Namespace = text(metadata.Value, "name"), text(metadata.Value, "namespace")
	if f.Name == "" {
		return yamledit.ErrorAt(root, "Pod without metadata.name")
	}
	if f.Namespace == "" {
		f.Namespace = "default"
	}
	f.Component = component(f.Namespace, metadata.Value)
	spec, _ := yamledit.Get(root, "spec")
	f.Role = roleOf(f.Name, metadata.Value, spec.Value)
	containers, ok := yamledit.Get(spec.Value, "containers")
	if !ok || len(yamledit.Resolve(containers.Value).Content) == 0 {
		return yamledit.ErrorAt(root, "Pod %s without containers", f.Name)
	}
	return nil
}

// component returns the component name that kubeadm's label gives a control-plane pod, else "".
func component(namespace string, metadata *yaml.Node) string {
	labels, _ := yamledit.Get(metadata, "labels")
	name := text(labels.Value, "component")
	if namespace != "kube-system" || text(labels.Value, "tier") != "control-plane" || !slices.Contains(roles, name) {
		return ""
	}
	return name
}

// text returns a field's string, "" if the field is absent or not a string.
func text(mapping *yaml.Node, name string) string {
	field, _ := yamledit.Get(mapping, name)
	return stringOf(field.Value)
}

func stringOf(n *yaml.Node) string {
	if n = yamledit.Resolve(n); n != nil && n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		return n.Value
	}
	return ""
}
