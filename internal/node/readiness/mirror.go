// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/fleet/kubeconfig"
)

const (
	maxPod = 2 << 20 // bytes; an object has at most 1.5 MiB

	// mirrorPause is the time from one question to the API server to the next, mirrorRetry that after an error.
	mirrorPause = time.Second
	mirrorRetry = 5 * time.Second
)

// annotationMirror marks the copy of a static pod in the API server
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror).
const annotationMirror = "kubernetes.io/config.mirror"

// mirror is the last answer about a pod.
type mirror struct {
	pod  string
	at   time.Time
	said map[string]containerStatus
	err  error
}

// mirrored returns what kubelet has told the API server about the containers of a static pod, by their ids. It is no
// answer about a container that it does not name: kubelet may not have told of its start yet, or runs without an API
// server.
func (c *Checker) mirrored(ctx context.Context, namespace, name string) (map[string]containerStatus, error) {
	if c.Kubeconfig == "" {
		return nil, nil
	}
	pause := mirrorPause
	if c.mirror.err != nil {
		pause = mirrorRetry
	}
	if key := namespace + "/" + name; c.mirror.pod != key || time.Since(c.mirror.at) >= pause {
		said, err := c.askMirror(ctx, namespace, name)
		c.mirror = mirror{key, time.Now(), said, err}
	}
	return c.mirror.said, c.mirror.err
}

func (c *Checker) askMirror(ctx context.Context, namespace, name string) (map[string]containerStatus, error) {
	if _, err := os.Stat(c.Kubeconfig); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // kubelet runs alone
	}
	k, err := kubeconfig.Read(c.Root, c.Kubeconfig)
	if err != nil {
		return nil, outside.Error(err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	failed := func(err error) error {
		return fmt.Errorf("pod %s/%s at %s: %w", namespace, name, k.Host(), withTimeout(err, c.Timeout))
	}
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(name)
	body, err := k.Get(ctx, path, c.Version, maxPod)
	if err != nil {
		return nil, failed(err)
	}
	var p pod
	err = json.Unmarshal(body, &p)
	isIt := p.Kind == "Pod" && p.Metadata.Namespace == namespace && p.Metadata.Name == name
	if err != nil || !isIt || p.Metadata.Annotations[annotationMirror] == "" {
		return nil, failed(errors.New("the answer is not this static pod"))
	}
	said := map[string]containerStatus{}
	byID(said, append(p.Status.ContainerStatuses, p.Status.InitContainerStatuses...)...)
	return said, nil
}
