// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// A node runs some hundred pods at most, each of some 10 KiB in the list.
const maxList = 8 << 20

var errTooLarge = fmt.Errorf("larger than the limit of %d bytes", maxList)

// podList is the part of a v1.PodList that counts here
// (https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/).
type podList struct {
	Kind  string
	Items []pod
}

type pod struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Annotations     map[string]string
	}
	Status struct{ ContainerStatuses, InitContainerStatuses []containerStatus }
}

type containerStatus struct {
	Name  string
	State struct {
		Waiting *struct{ Reason, Message string }
	}
	LastState struct {
		Terminated *struct {
			ExitCode int32
			Reason   string
		}
	}
	ContainerID  string // "containerd://9a5f..."; empty while it waits
	Ready        bool
	Started      *bool // kubelet calls a container without a startup probe started as soon as it runs
	RestartCount int
}

// before says how often the container was restarted, and why; "" if never.
func (s containerStatus) before() string {
	if s.RestartCount == 0 {
		return ""
	}
	out := fmt.Sprintf(", which has restarted it %d times", s.RestartCount)
	if last := s.LastState.Terminated; last != nil {
		out += fmt.Sprintf("; it last ended with exit code %d: %s", last.ExitCode, outside.Line(last.Reason, 64))
	}
	return out
}

// byID adds statuses by the ids of their containers.
func byID(seen map[string]containerStatus, all ...containerStatus) {
	for _, status := range all {
		if _, id, ok := strings.Cut(status.ContainerID, "://"); ok && id != "" {
			seen[id] = status
		}
	}
}

// listed returns the status of a pod's containers by their ids. While one pod replaces another, the list may have both.
func (c *Checker) listed(ctx context.Context, namespace, name string) (map[string]containerStatus, error) {
	list, err := c.pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown(c.list), err)
	}
	seen := map[string]containerStatus{}
	for _, pod := range list.Items {
		if pod.Metadata.Name != name || pod.Metadata.Namespace != namespace {
			continue
		}
		byID(seen, append(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses...)...)
	}
	return seen, nil
}

// Waiting lists the containers that kubelet does not start, with reasons; none without kubelet's list.
func (c *Checker) Waiting(ctx context.Context) ([]node.Waiting, error) {
	if c.list == nil {
		return nil, nil
	}
	list, err := c.pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown(c.list), err)
	}
	var out []node.Waiting
	for _, pod := range list.Items {
		for _, s := range append(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses...) {
			if w := s.State.Waiting; w != nil {
				out = append(out, node.Waiting{
					Namespace: pod.Metadata.Namespace, Pod: pod.Metadata.Name, Container: s.Name,
					Reason: outside.Text(w.Reason), Message: outside.Text(w.Message),
				})
			}
		}
	}
	return out, nil
}

func (c *Checker) pods(ctx context.Context) (podList, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.list.String(), http.NoBody)
	if err != nil {
		return podList{}, cause(err)
	}
	req.Header.Set("User-Agent", c.UserAgent)
	req.Header.Set("Accept", "application/json")
	res, err := c.transport.RoundTrip(req) // without redirects
	if err != nil {
		return podList{}, withTimeout(err, c.Timeout)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return podList{}, statusError(res.StatusCode)
	}
	var list podList
	if err := json.NewDecoder(&bounded{res.Body, maxList}).Decode(&list); err != nil {
		return podList{}, withTimeout(err, c.Timeout)
	}
	if list.Kind != "PodList" {
		return podList{}, errors.New("no list of pods")
	}
	return list, nil
}

// bounded reads at most left bytes, and returns errTooLarge if there are more.
type bounded struct {
	from io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errTooLarge
	}
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
