// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// The roles of the pods that make up a cluster's API, and of those that must not be newer than its API server.
const (
	RoleEtcd              = "etcd"
	RoleAPIServer         = "kube-apiserver"
	RoleControllerManager = "kube-controller-manager"
	RoleScheduler         = "kube-scheduler"
)

// roles are in order of precedence for a pod that matches several.
var roles = []string{RoleEtcd, RoleAPIServer, RoleControllerManager, RoleScheduler}

// roleLabels are the labels that installers use to name a component: kubeadm, RKE2, kubespray, Helm charts.
var roleLabels = []string{"component", "k8s-app", "app", "app.kubernetes.io/name", "app.kubernetes.io/component"}

// roleOf returns the control-plane role of a pod by its name, its labels, or the program of a container; "" if it has
// none. A false match only makes the agent more careful.
func roleOf(name string, metadata, spec *yaml.Node) string {
	labels, _ := yamledit.Get(metadata, "labels")
	var words, names []string
	for _, c := range programs(spec) {
		words = append(words, programWords(c)...)
		if isUnknownProgram(c) {
			names = append(names, tellingName(repositoryName(text(c, "image")), text(c, "name"), name))
		}
	}
	for _, role := range roles {
		named := name == role || slices.ContainsFunc(roleLabels, func(l string) bool { return text(labels.Value, l) == role })
		if named || slices.ContainsFunc(words, func(w string) bool { return runs(words, w, role) }) ||
			slices.ContainsFunc(names, func(n string) bool { return hasName(n, role) }) {
			return role
		}
	}
	return ""
}

// Runs reports whether the named container runs the program of a role. Role says the same about the whole pod.
func (f *File) Runs(container, role string) bool {
	spec, _ := yamledit.Get(f.yaml.Documents[0].Content[0], "spec")
	return slices.ContainsFunc(programs(spec.Value), func(c *yaml.Node) bool {
		if text(c, "name") != container {
			return false
		}
		words := programWords(c)
		return slices.ContainsFunc(words, func(w string) bool { return runs(words, w, role) }) ||
			isUnknownProgram(c) && hasName(tellingName(repositoryName(text(c, "image")), container), role)
	})
}

// Decode decodes the pod into v by its YAML field names.
func (f *File) Decode(v any) error { return f.yaml.Documents[0].Decode(v) }

// programs returns the containers and init containers of a pod.
func programs(spec *yaml.Node) []*yaml.Node {
	var all []*yaml.Node
	for _, list := range []string{"containers", "initContainers"} {
		found, _ := yamledit.Get(spec, list)
		all = append(all, children(found.Value)...)
	}
	return all
}

// ownFlags maps flags that only one program has to its role, whatever its file name; etcd's variables are its flags in
// capitals.
var ownFlags = map[string]string{
	"listen-client-urls": RoleEtcd, "listen-peer-urls": RoleEtcd, "listen-metrics-urls": RoleEtcd,
	"initial-cluster": RoleEtcd, "initial-cluster-state": RoleEtcd, "initial-cluster-token": RoleEtcd,
	"advertise-client-urls": RoleEtcd, "initial-advertise-peer-urls": RoleEtcd,
	"kubelet-client-certificate": RoleAPIServer, "service-account-signing-key-file": RoleAPIServer,
	"service-account-issuer": RoleAPIServer,
}

// etcdVariable converts an environment variable of etcd to its flag.
func etcdVariable(name string) string {
	if flag, is := strings.CutPrefix(name, "ETCD_"); is {
		return strings.ReplaceAll(strings.ToLower(flag), "_", "-")
	}
	return name
}

// hides matches programs that start another program, which their arguments need not name.
var hides = lazyregexp.New(`^(|.*\.(sh|bash|py|pl)|sh|bash|dash|ash|busybox|env|tini|dumb-init|python3?|` +
	`(docker-)?entrypoint|start|run|init)$`)

// isUnknownProgram reports whether a container hides its program: it runs the image's entrypoint, or a script.
func isUnknownProgram(container *yaml.Node) bool {
	command, _ := yamledit.Get(container, "command")
	words := commandWords(container)
	return len(children(command.Value)) == 0 || len(words) == 0 || strings.Contains(words[0], "$") ||
		hides().MatchString(path.Base(words[0]))
}

// tellingName returns the first name that matches a role; "" if none does.
func tellingName(names ...string) string {
	for _, name := range names {
		if slices.ContainsFunc(roles, func(role string) bool { return hasName(name, role) }) {
			return name
		}
	}
	return ""
}

// dashed writes the separators in a name as dashes.
var dashed = strings.NewReplacer("_", "-", ".", "-")

// hasName reports whether a part of a name is a role: etcd0, etcd-master1, hardened-etcd, start-etcd.sh.
func hasName(name, role string) bool {
	name = dashed.Replace(name)
	for rest, found := name, true; found; {
		var before string
		if before, rest, found = strings.Cut(rest, role); !found {
			return false
		}
		after := strings.TrimLeft(rest, "0123456789")
		if (before == "" || strings.HasSuffix(before, "-")) && (after == "" || strings.HasPrefix(after, "-")) {
			return true
		}
	}
	return false
}

// programFile matches a role and the suffixes that installers add to its file name.
var programFile = lazyregexp.New(`^(etcd|kube-[a-z-]+?)` +
	`(-v?\d+(\.\d+)+([-+]\w+)*|-amd64|-arm64|-ppc64le|-s390x|-manager)$`)

// IsProgram reports whether a file name is that of a role's program: etcd, etcd-v3.5.21.
func IsProgram(file, role string) bool {
	m := programFile().FindStringSubmatch(file)
	return file == role || m != nil && m[1] == role
}

// runs reports whether a word of a pod's programs shows that it has a role.
func runs(words []string, word, role string) bool {
	file := path.Base(word)
	if IsProgram(file, role) {
		return true
	}
	if strings.HasSuffix(file, ".sh") && !strings.HasPrefix(word, "-") && hasName(file, role) {
		return true
	}
	if word == strings.TrimPrefix(role, "kube-") && role != RoleEtcd { // hyperkube apiserver
		return slices.ContainsFunc(words, func(w string) bool { return path.Base(w) == "hyperkube" })
	}
	flag, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	return ownFlags[etcdVariable(flag)] == role
}

// programWords returns the words of a container that may name its program: words of command and args, also within a
// shell script, and the values of variables.
func programWords(container *yaml.Node) []string {
	words := commandWords(container)
	env, _ := yamledit.Get(container, "env")
	hasVariable := slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "$") })
	for _, variable := range children(env.Value) {
		words = append(words, text(variable, "name"))
		if hasVariable {
			words = append(words, strings.FieldsFunc(text(variable, "value"), isBetweenWords)...)
		}
	}
	return words
}

func commandWords(container *yaml.Node) (words []string) {
	for _, name := range []string{"command", "args"} {
		list, _ := yamledit.Get(container, name)
		for _, item := range children(list.Value) {
			words = append(words, strings.FieldsFunc(valueOf(item), isBetweenWords)...)
		}
	}
	return words
}

func valueOf(n *yaml.Node) string {
	if n = yamledit.Resolve(n); n != nil {
		return n.Value
	}
	return ""
}

// isBetweenWords splits generously: an extra word is one more candidate for a program name.
func isBetweenWords(r rune) bool { return strings.ContainsRune(" \t\r\n;&|()<>\"'`{}", r) }

// repositoryName returns the last component of an image's repository.
func repositoryName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name, _, _ := strings.Cut(path.Base(image), ":")
	return name
}
