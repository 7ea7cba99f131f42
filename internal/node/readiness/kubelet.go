// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/fleet/kubeconfig"
)

// A node runs some hundred pods at most, each of some 10 KiB in the list.
const maxList = 8 << 20

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
	bounded := io.LimitedReader{R: res.Body, N: maxList}
	if err := json.NewDecoder(&bounded).Decode(&list); err != nil {
		if bounded.N == 0 {
			err = fmt.Errorf("larger than the limit of %d bytes", maxList)
		}
		return podList{}, withTimeout(err, c.Timeout)
	}
	if list.Kind != "PodList" {
		return podList{}, errors.New("no list of pods")
	}
	return list, nil
}

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

const (
	maxHeader    = 64 << 10
	maxAddresses = 32 // all are tried within a probe's timeout
)

// newTransport returns a transport like kubelet's, without kept connections.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // not even the environment's
		DialContext:            (&net.Dialer{KeepAlive: -1}).DialContext,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: maxHeader,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			// A container's certificate names its service, not the probe's address; kubelet does not verify it, either.
			// The request has no secrets.
			InsecureSkipVerify: true, //nolint:gosec // see above
		},
	}
}

// hostAddresses returns the addresses of the host's interfaces: one of them is the node's, which kubelet asks. It never
// asks loopback (validateNodeIP in k8s.io/kubernetes/pkg/kubelet/kubelet_node_status.go) unless a probe names it.
func hostAddresses(ctx context.Context) (found []netip.Addr) {
	own, err := net.InterfaceAddrs()
	if err != nil { // the service may not be allowed to open netlink sockets
		return append(found, sources(ctx)...)
	}
	for _, o := range own {
		prefix, err := netip.ParsePrefix(o.String())
		if a := prefix.Addr(); err == nil && a.IsGlobalUnicast() && len(found) < maxAddresses {
			found = append(found, a)
		}
	}
	return found
}

// sources returns the source addresses of the default routes, as kubelet chooses a node's address. It sends nothing;
// the destinations are for documentation (RFC 5737, RFC 3849).
func sources(ctx context.Context) []netip.Addr {
	var found []netip.Addr
	for _, far := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp", far)
		if err != nil {
			continue // no route of this family
		}
		local, err := netip.ParseAddrPort(conn.LocalAddr().String())
		if closing := conn.Close(); err == nil && closing == nil {
			found = append(found, local.Addr())
		}
	}
	return found
}

// shown returns a URL for a message, without user and query.
func shown(u *url.URL) string {
	bare := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return outside.Text(bare.String())
}

func statusError(code int) error {
	return errors.New(strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code))))
}

// lateError says that a timeout was over.
type lateError struct{ text string }

func (l *lateError) Error() string { return l.text }

// withTimeout names the timeout if it is the cause.
func withTimeout(err error, timeout time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &lateError{fmt.Sprintf("no answer within %v", timeout)}
	}
	return cause(err)
}

// cause removes the URL of a url.Error, which the message already has and which may be secret.
func cause(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return errors.New(outside.Text(err.Error()))
}
