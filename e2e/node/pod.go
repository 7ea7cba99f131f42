// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path"
)

// Pod is a static pod with one container, which has the pod's name and runs an Image.
type Pod struct {
	Name       string
	Image      string
	Port       int    // on 127.0.0.1, where it answers
	PullPolicy string // empty: Always
}

// YAML returns the pod manifest. Its priority class keeps kubelet from evicting the pod.
func (p Pod) YAML() string {
	policy := p.PullPolicy
	if policy == "" {
		policy = "Always"
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %[1]s
  namespace: kube-system
  labels:
    app: %[1]s
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  terminationGracePeriodSeconds: 5
  containers:
  - name: %[1]s
    image: %[2]s
    imagePullPolicy: %[3]s
    args: ["127.0.0.1:%[4]d"]
`, p.Name, p.Image, policy, p.Port)
}

// WritePod writes the pod manifest NAME.yaml to kubelet's directory.
func (n *Node) WritePod(p Pod) {
	n.tb.Helper()
	n.WriteFile(path.Join("etc/kubernetes/manifests", p.Name+".yaml"), p.YAML())
}

// Answer asks the pod on a port for its version.
func Answer(port int) (string, error) {
	body, err := getAlone(context.Background(), fmt.Sprintf("http://127.0.0.1:%d/", port))
	return string(body), err
}

// WaitAnswer waits until the pod on a port gives this answer, and CRI says that it runs.
func (n *Node) WaitAnswer(port int, want string) {
	n.tb.Helper()
	Eventually(n.tb, fmt.Sprintf("pod at port %d", port), Patience, func() error {
		got, err := Answer(port)
		if err == nil && got != want {
			err = fmt.Errorf("answers %q, want %q", got, want)
		}
		return err
	})
	n.WaitStarted()
}
