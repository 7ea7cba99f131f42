// SPDX-License-Identifier: Apache-2.0

// Package manifests finds the image references in the pod manifest of a static pod and renders a template into the pod
// manifest for kubelet. It only maps bytes to bytes.
//
// Words:
//
//   - Pod manifest: a YAML or JSON file with one Pod that kubelet reads from its
//     directory. Kubelet uses the first document of a file; images in the
//     others are reported and never edited.
//   - File: a parsed pod manifest. It is read-only, so goroutines share it.
//   - Reference: the value of an image field, a repository with optional tag and
//     digest. Repository includes the registry host where there is one.
//   - Template: a pod manifest that may have the Placeholder in place of tags.
//   - Probe: a check that kubelet runs against a container: has it started, is it alive, is it ready.
//   - To pin: to set an image to one digest and a pull policy that needs no
//     registry.
//   - Image: one place that names an image, with its text, and
//     whether it can be edited, or the Reason why not.
//
// Promises: a rendered or pinned file differs from its source only in image references and pull policies; every other
// byte is kept. Render and Pin parse their result again and compare the trees before they return a byte of it.
// Rendering is idempotent. The size of the input is limited as in internal/base/yamledit.
package manifests

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// Kind is the kind of place that names an image.
type Kind string

// Kubelet pulls the images of the first four kinds. The last two are text with an image for another program (kubelet's
// --pod-infra-container-image, an operator's environment): the agent reports them and never edits them.
const (
	KindContainer   Kind = "container"
	KindInit        Kind = "initContainer"
	KindEphemeral   Kind = "ephemeralContainer"
	KindVolume      Kind = "volume"
	KindArgument    Kind = "argument"
	KindEnvironment Kind = "environment"
)

// Image is one place that names an image.
type Image struct {
	Path       string // "spec.containers[0].image", within its document
	Document   int    // 0 is the one that kubelet runs
	Line       int    // of the value, or of its container if it has no value; from 1
	Column     int    // in characters, from 1
	Container  string // name of the container, or of the volume
	Kind       Kind
	Reference  string // as written; in a text only the part that names the image
	PullPolicy string // as written, "" if absent
	Editable   bool   // the reference can be replaced
	Reason     string // one of the Reason words, "" if Editable
}

// Pod holds the fields of a pod manifest about images, readiness and termination.
type Pod struct {
	Name      string
	Namespace string  // "default" if absent, as in kubelet
	Component string  // control-plane component by kubeadm's labels: etcd, kube-apiserver, ...; "" if none
	Role      string  // control-plane role by name, labels or program: RoleEtcd, RoleAPIServer, ...; "" if none
	Images    []Image // ordered by document, then containers, init containers, ephemeral containers, volumes

	Probes      []Probe       // of the regular containers, then of sidecars, in order: startup, liveness, readiness
	HostNetwork bool          // the pod uses the host's network
	Once        bool          // restartPolicy Never or OnFailure: kubelet does not restart a container that succeeded
	Never       bool          // restartPolicy Never: kubelet does not restart a container that failed, either
	Grace       time.Duration // terminationGracePeriodSeconds: from SIGTERM to SIGKILL
}

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
// List, no name, no containers, two containers of one name, invalid JSON.
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
		if err := f.namesakes(); err != nil && i == 0 {
			return nil, err
		}
	}
	f.judgeAnchors(root)
	spec, _ := yamledit.Get(root, "spec")
	f.serving(spec.Value)
	return f, nil
}

// namesakes returns an error if two containers have one name: kubelet refuses such a pod (validateContainers in
// pkg/apis/core/validation), and a name would not say which of them is meant.
func (f *File) namesakes() error {
	lines := map[string]int{}
	for n, i := range f.Images {
		if i.Container == "" || !slices.Contains([]Kind{KindContainer, KindInit, KindEphemeral}, i.Kind) {
			continue
		}
		if line, is := lines[i.Container]; is {
			return yamledit.ErrorAt(f.sites[n].owner, "container %s: the container in line %d has the same name, so kubelet "+
				"refuses the pod", i.Container, line)
		}
		lines[i.Container] = f.sites[n].owner.Line
	}
	return nil
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
		return yamledit.ErrorAt(root, "kubelet reads it as a Pod, but the agent does not: write the key kind in lower case")
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

// arguments records images in a container's command and args.
func (f *finder) arguments(c *yaml.Node, name, path string) {
	for _, field := range []string{"command", "args"} {
		list, _ := yamledit.Get(c, field)
		previous := ""
		for i, item := range children(list.Value) {
			word := stringOf(item)
			hint, value, isFlag := strings.Cut(word, "=")
			if !strings.HasPrefix(word, "-") || !isFlag {
				hint, value = previous, word
			}
			previous = ""
			if strings.HasPrefix(word, "-") && !isFlag {
				previous = word // its value is the next word
			}
			f.text(KindArgument, name, fmt.Sprintf("%s.%s[%d]", path, field, i), item, hint, value)
		}
	}
}

// environment records images in a container's env.
func (f *finder) environment(c *yaml.Node, name, path string) {
	list, _ := yamledit.Get(c, "env")
	for i, item := range children(list.Value) {
		if value, ok := yamledit.Get(item, "value"); ok {
			at := fmt.Sprintf("%s.env[%d].value", path, i)
			f.text(KindEnvironment, name, at, value.Value, text(item, "name"), stringOf(value.Value))
		}
	}
}

func children(list *yaml.Node) []*yaml.Node {
	if list = yamledit.Resolve(list); list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	return list.Content
}

func (f *finder) text(kind Kind, container, path string, n *yaml.Node, hint, value string) {
	reason := ReasonArgument
	switch {
	case f.document > 0:
		reason = ReasonLaterDocument
	case kind == KindEnvironment:
		reason = ReasonEnvironment
	}
	for _, reference := range imagesIn(hint, value) {
		f.sites = append(f.sites, site{})
		f.Images = append(f.Images, Image{
			Path: path, Document: f.document, Line: n.Line, Column: n.Column,
			Container: container, Kind: kind, Reference: reference, Reason: reason,
		})
	}
}

// withPlaceholder matches words that contain the placeholder.
var withPlaceholder = lazyregexp.New(`[\w./:@-]*` + Placeholder + `[\w./:@-]*`)

// imagesIn finds the images in a text: every word with the placeholder, or else the whole text if it is a tagged or
// pinned reference with a registry host, or any reference whose name (hint) contains "image". A wrong guess only costs
// a line of output.
func imagesIn(hint, value string) []string {
	if found := withPlaceholder().FindAllString(value, -1); found != nil {
		return found
	}
	ref, hint := SplitReference(value), strings.ToLower(hint)
	pinned := ref.Tag != "" || ref.Digest != ""
	switch {
	case !ref.valid():
		return nil
	case ref.hasHost() && pinned,
		strings.HasSuffix(hint, "image"),
		strings.Contains(hint, "image") && (pinned || strings.Contains(ref.Name, "/")):
		return []string{value}
	}
	return nil
}

// uses counts for each node how often it is reached from the root of the first document, with aliases followed and
// merge keys applied: the number of places that an edit would change. It is nil for a document without anchors, where
// every node is reached once.
type uses map[*yaml.Node]int

func countUses(root *yaml.Node) uses {
	if !hasAnchor(root) {
		return nil
	}
	u := uses{}
	u.visit(root)
	return u
}

func (u uses) visit(n *yaml.Node) {
	n = yamledit.Resolve(n)
	u[n]++
	if n.Kind != yaml.MappingNode {
		for _, child := range n.Content {
			u.visit(child)
		}
		return
	}
	own := 0
	for _, field := range yamledit.Fields(n) {
		u.visit(field.Key)
		u.visit(field.Value)
		if !field.Merged {
			own++
		}
	}
	if own == len(n.Content)/2 {
		return
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].ShortTag() == "!!merge" {
			u.source(n.Content[i+1])
		}
	}
}

// source counts each mapping behind a merge key as used once more, because a key inserted into it appears here as well.
func (u uses) source(n *yaml.Node) {
	n = yamledit.Resolve(n)
	u[n]++
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			u.source(item)
		}
	}
}

// isShared reports whether an anchor makes n the value of places outside sites.
func (f *File) isShared(n *yaml.Node, sites []int) bool {
	return f.uses != nil && f.uses[n] != len(sites)
}

func hasAnchor(n *yaml.Node) bool {
	return n.Anchor != "" || slices.ContainsFunc(n.Content, hasAnchor)
}

// judgeAnchors marks a value as not editable if an anchor also gives it to places that are not an image of this pod.
func (f *File) judgeAnchors(root *yaml.Node) {
	if f.uses = countUses(root); f.uses == nil {
		return
	}
	images := map[*yaml.Node]int{}
	for i, s := range f.sites {
		if f.Images[i].Editable {
			images[yamledit.Resolve(s.value)]++
		}
	}
	for i, s := range f.sites {
		img := &f.Images[i]
		if n := yamledit.Resolve(s.value); img.Editable && f.uses[n] != images[n] {
			img.Editable, img.Reason = false, ReasonShared
		}
	}
}
