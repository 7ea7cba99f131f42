// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubic-project/image-update-agent/manifests"
)

const template = `apiVersion: v1
kind: Pod
metadata:
  name: velum # the dashboard
spec:
  containers:
  - name: velum-dashboard
    image: sles12/velum:__TAG__
`

func ExampleParse() {
	file, err := manifests.Parse([]byte(template))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, image := range file.Images {
		fmt.Println(file.ID(), image.Line, image.Path, image.Reference, image.Editable)
	}
	// Output: default/velum 8 spec.containers[0].image sles12/velum:__TAG__ true
}

// A file that kubelet ignores and a file that it cannot read are different errors.
func ExampleParse_notPod() {
	_, err := manifests.Parse([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: velum}\n"))
	_, ok := errors.AsType[*manifests.NotPodError](err)
	fmt.Println(ok)
	// Output: true
}

func ExampleFile_Render() {
	file, err := manifests.Parse([]byte(template))
	if err != nil {
		fmt.Println(err)
		return
	}
	rendered, err := file.Render(manifests.Overrides{
		Rewrites: []manifests.Rewrite{{From: "sles12", To: "registry.suse.com/caasp/v4"}},
		Tag: func(repository string, _ manifests.Image) (string, bool) {
			return "4.0.0-rev1", strings.HasSuffix(repository, "/velum")
		},
		PullPolicy: manifests.PullIfNotPresent,
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(string(rendered.Data))
	// Output:
	// apiVersion: v1
	// kind: Pod
	// metadata:
	//   name: velum # the dashboard
	// spec:
	//   containers:
	//   - name: velum-dashboard
	//     image: registry.suse.com/caasp/v4/velum:4.0.0-rev1
	//     imagePullPolicy: IfNotPresent
}

// A placeholder without a tag leaves the whole pod unresolved.
func ExampleFile_Render_unresolved() {
	file, err := manifests.Parse([]byte(template))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = file.Render(manifests.Overrides{}, nil)
	if unresolved, ok := errors.AsType[*manifests.UnresolvedError](err); ok {
		fmt.Println(unresolved.Images[0].Container)
	}
	fmt.Println(err)
	// Output:
	// velum-dashboard
	// no tag is known for __TAG__: line 8: spec.containers[0].image: sles12/velum:__TAG__
}

func ExampleFile_Pin() {
	file, err := manifests.Parse([]byte(strings.ReplaceAll(template, manifests.Placeholder, "4.0.0-rev1")))
	if err != nil {
		fmt.Println(err)
		return
	}
	pinned, err := file.Pin([]manifests.Pinned{{
		Kind: manifests.KindContainer, Container: "velum-dashboard",
		Reference: "sles12/velum:4.0.0-rev1@sha256:" + strings.Repeat("5e", 32),
	}}, manifests.PullIfNotPresent)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, image := range pinned.Images {
		fmt.Println(image.Reference[:40], image.PullPolicy, image.Reason)
	}
	// Output: sles12/velum:4.0.0-rev1@sha256:5e5e5e5e5 IfNotPresent digest-pinned
}

func ExampleSplitReference() {
	reference := manifests.SplitReference("registry.example.com:5000/caasp/velum:4.0.0-rev1")
	fmt.Println(reference.Name, reference.Tag)
	// Output: registry.example.com:5000/caasp/velum 4.0.0-rev1
}
