// SPDX-License-Identifier: Apache-2.0

// Package pods implements node.Pods with CRI v1, the API between kubelet and the container runtime.
//
// # Words
//
// A sandbox holds the namespaces that the containers of a pod share. An attempt is one start of a container within a
// pod; kubelet counts them and keeps the last ended one for its log. A static pod is one that kubelet read from a file,
// by the annotations of its sandbox. The image id is the digest of an image's config: the only reliable identity of a
// running image in CRI, since a container's status shows any of the image's tags.
//
// # Promises
//
//   - Reading changes nothing.
//   - Stop and Clear are idempotent: a missing container counts as stopped.
//   - The time of calls and the size of answers are limited; the latter by kubelet's own limit.
//   - Every call opens its own connection, and so survives a restart of the runtime.
package pods

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

const (
	// pullTimeout is enough for 200 MB over 2 Mbit/s.
	pullTimeout = 15 * time.Minute
	// callTimeout is half of kubelet's.
	callTimeout = time.Minute
	// stopMargin is for the kill and the unmounts after the grace period.
	stopMargin = 30 * time.Second
	// execMargin is for the kill after the timeout.
	execMargin = 10 * time.Second
	// maxMessage is kubelet's limit for a CRI answer.
	maxMessage = 16 << 20
)

// Options configure a Runtime.
type Options struct {
	// Socket is the absolute path of the CRI socket.
	Socket string
}

// Runtime is the container runtime behind one socket. It is safe for concurrent use.
type Runtime struct {
	socket string

	mu      sync.Mutex
	started map[string]int64 // start of each running container of the last list, by its id
}

var _ node.Pods = (*Runtime)(nil)

// New checks the options. It does not connect: the runtime may start later.
func New(o Options) (*Runtime, error) {
	if !filepath.IsAbs(o.Socket) {
		return nil, fmt.Errorf("cri %q: not an absolute path", o.Socket)
	}
	return &Runtime{socket: o.Socket}, nil
}

// session is one call's connection.
type session struct {
	cri.RuntimeServiceClient
	cri.ImageServiceClient
}

// with runs a call on a new session, within limit.
func (r *Runtime) with(ctx context.Context, limit time.Duration, call func(context.Context, session) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := r.connected(ctx, call)
	if err != nil {
		return outside.Error(fmt.Errorf("cri %s: %w", r.socket, err)) // it may quote a registry
	}
	return nil
}

func (r *Runtime) connected(ctx context.Context, call func(context.Context, session) error) error {
	// The extra dial returns the kernel's error, which gRPC would wrap three times.
	probe, err := r.dial(ctx, "")
	if err != nil {
		return err
	}
	if err := probe.Close(); err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:cri",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(r.dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return err
	}
	err = call(ctx, session{cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)})
	return errors.Join(err, conn.Close())
}

func (r *Runtime) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", r.socket)
	if at, ok := errors.AsType[*net.OpError](err); ok {
		return nil, at.Err // with adds the path
	}
	return conn, err
}

// isNotFound reports whether the runtime does not know the object.
func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// readable converts a gRPC error to the runtime's own text, with the standard errors that callers check.
func readable(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	switch s.Code() {
	case codes.DeadlineExceeded:
		return fmt.Errorf("%w: %s", context.DeadlineExceeded, s.Message())
	case codes.Canceled:
		return fmt.Errorf("%w: %s", context.Canceled, s.Message())
	case codes.NotFound:
		return fmt.Errorf("%w: %s", release.ErrNotFound, s.Message())
	case codes.Unknown:
		return errors.New(s.Message())
	}
	return fmt.Errorf("%s: %s", s.Code(), s.Message())
}

// Kubelet's labels and annotations of sandboxes and containers
// (kubelet/pkg/types/labels.go and pkg/kubelet/types/pod_update.go).
const (
	labelContainer   = "io.kubernetes.container.name"
	labelPodName     = "io.kubernetes.pod.name"
	labelNamespace   = "io.kubernetes.pod.namespace"
	labelPodUID      = "io.kubernetes.pod.uid"
	annotationSource = "kubernetes.io/config.source"
	fromFile         = "file"
)

// Containers lists the containers of static pods, including init containers: the newest attempt of each, running or
// not, by pod and name. A changed static pod has a new uid; the ended containers of the old one are also listed until
// kubelet removes them. used are the image ids of all containers of the node.
func (r *Runtime) Containers(ctx context.Context) (found []node.Container, used []digest.Digest, err error) {
	r.mu.Lock()
	started := r.started
	r.mu.Unlock()
	err = r.with(ctx, callTimeout, func(ctx context.Context, c session) (err error) {
		found, used, started, err = c.containers(ctx, started)
		return err
	})
	if err == nil {
		r.mu.Lock()
		r.started = started
		r.mu.Unlock()
	}
	return found, used, err
}

// containers lists the containers. The list has no start: started has those of running containers, so that only the
// others are asked for their status.
func (c session) containers(
	ctx context.Context, started map[string]int64,
) (found []node.Container, used []digest.Digest, running map[string]int64, err error) {
	running = map[string]int64{}
	sandboxes, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("list sandboxes: %w", readable(err))
	}
	all, err := c.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("list containers: %w", readable(err))
	}
	images, err := c.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("list images: %w", readable(err))
	}
	known := repoDigests(images.GetImages())
	for _, container := range newest(static(sandboxes.GetItems(), all.GetContainers())) {
		id, isRunning := container.GetId(), container.GetState() == cri.ContainerState_CONTAINER_RUNNING
		if at := started[id]; isRunning && at > 0 {
			running[id] = at
			found = append(found, describe(container, &cri.ContainerStatus{State: container.GetState(), StartedAt: at}, known))
			continue
		}
		answer, err := c.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
		if isNotFound(err) {
			continue // removed since the list
		}
		if err != nil {
			return nil, nil, nil, fmt.Errorf("container %s: %w", id, readable(err))
		}
		status := answer.GetStatus()
		if status.GetState() == cri.ContainerState_CONTAINER_RUNNING {
			running[id] = status.GetStartedAt()
		}
		found = append(found, describe(container, status, known))
	}
	for _, container := range all.GetContainers() {
		if id := imageID(container); id != "" {
			used = append(used, id)
		}
	}
	return found, used, running, nil
}

// static returns the containers of static pods.
func static(sandboxes []*cri.PodSandbox, containers []*cri.Container) []*cri.Container {
	files := map[string]bool{}
	for _, sandbox := range sandboxes {
		files[sandbox.GetId()] = sandbox.GetAnnotations()[annotationSource] == fromFile
	}
	return slices.DeleteFunc(slices.Clone(containers), func(c *cri.Container) bool {
		return !files[c.GetPodSandboxId()]
	})
}

type identity struct{ namespace, pod, name, uid string }

func identify(c *cri.Container) identity {
	labels := c.GetLabels()
	return identity{labels[labelNamespace], labels[labelPodName], labels[labelContainer], labels[labelPodUID]}
}

// newest returns the newest attempt of each container, sorted. Clocks jump, so the attempt takes precedence over the
// creation time.
func newest(containers []*cri.Container) []*cri.Container {
	latest := map[identity]*cri.Container{}
	for _, c := range containers {
		id := identify(c)
		if old, ok := latest[id]; !ok || byAge(old, c) < 0 {
			latest[id] = c
		}
	}
	return slices.SortedFunc(maps.Values(latest), func(a, b *cri.Container) int {
		x, y := identify(a), identify(b)
		return cmp.Or(strings.Compare(x.namespace, y.namespace), strings.Compare(x.pod, y.pod),
			strings.Compare(x.name, y.name), byAge(a, b), strings.Compare(x.uid, y.uid))
	})
}

func byAge(a, b *cri.Container) int {
	return cmp.Or(
		cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt()),
		cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()),
		strings.Compare(a.GetId(), b.GetId()))
}

// repoDigests maps image ids to their digests in repositories.
func repoDigests(images []*cri.Image) map[digest.Digest][]digest.Digest {
	known := map[digest.Digest][]digest.Digest{}
	for _, image := range images {
		id := digest.Digest(image.GetId())
		for _, name := range image.GetRepoDigests() {
			_, text, _ := strings.Cut(name, "@")
			if d, err := digest.Parse(text); err == nil && !slices.Contains(known[id], d) {
				known[id] = append(known[id], d)
			}
		}
	}
	return known
}

func describe(c *cri.Container, status *cri.ContainerStatus, known map[digest.Digest][]digest.Digest) node.Container {
	labels := c.GetLabels()
	found := node.Container{
		ID:        c.GetId(),
		Sandbox:   c.GetPodSandboxId(),
		Pod:       labels[labelPodName],
		Namespace: labels[labelNamespace],
		Name:      labels[labelContainer],
		Running:   status.GetState() == cri.ContainerState_CONTAINER_RUNNING,
		ExitCode:  status.GetExitCode(),
		Restarts:  c.GetMetadata().GetAttempt(),
		Image:     imageID(c),
	}
	if at := status.GetStartedAt(); at > 0 {
		found.StartedAt = time.Unix(0, at)
	}
	if at := status.GetFinishedAt(); at > 0 {
		found.FinishedAt = time.Unix(0, at)
	}
	if status.GetState() == cri.ContainerState_CONTAINER_EXITED {
		found.Reason, found.Message = outside.Text(status.GetReason()), outside.Text(status.GetMessage())
	}
	found.Digests = known[found.Image]
	return found
}

// imageID returns the config digest of a container's image: from its own field since CRI of Kubernetes 1.30, before
// that from the reference; "" if neither is a digest.
func imageID(c *cri.Container) digest.Digest {
	for _, text := range []string{c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage()} {
		if d, err := digest.Parse(text); err == nil {
			return d
		}
	}
	return ""
}

// UntilRestart returns a function that returns the last answer of containerd until it restarts, which creates a new
// socket. An error is not kept.
func UntilRestart[T any](socket string, ask func(context.Context) (T, error)) func(context.Context) (T, error) {
	var mu sync.Mutex
	var from os.FileInfo // the socket that answered
	var last T
	return func(ctx context.Context) (T, error) {
		mu.Lock()
		defer mu.Unlock()
		now, err := os.Stat(socket)
		if err == nil && from != nil && os.SameFile(from, now) && from.ModTime().Equal(now.ModTime()) {
			return last, nil
		}
		value, err := ask(ctx)
		if err == nil {
			from, last = now, value
		}
		return value, err
	}
}

// ConfigPath returns the config_path of the running containerd, from its verbose status. known is false if the status
// does not have it: containerd 2.x has it elsewhere.
func (r *Runtime) ConfigPath(ctx context.Context) (path string, known bool, err error) {
	err = r.with(ctx, callTimeout, func(ctx context.Context, c session) error {
		answer, err := c.Status(ctx, &cri.StatusRequest{Verbose: true})
		if err != nil {
			return fmt.Errorf("status: %w", readable(err))
		}
		var config struct {
			Registry *struct {
				ConfigPath *string `json:"configPath"`
			} `json:"registry"`
		}
		if text := answer.GetInfo()["config"]; text != "" {
			if err := json.Unmarshal([]byte(text), &config); err != nil {
				return fmt.Errorf("status: not a configuration in JSON: %w", err)
			}
		}
		if config.Registry != nil && config.Registry.ConfigPath != nil {
			path, known = *config.Registry.ConfigPath, true
		}
		return nil
	})
	return path, known, err
}

// snapshotterPrefix is containerd's prefix for the directory of a snapshotter (plugin type and id;
// internal/cri/config.getImageFSPath).
const snapshotterPrefix = "io.containerd.snapshotter.v1."

// Filesystem returns path, size and free space of the runtime's image filesystem. Free is what kubelet calls available:
// without the blocks reserved for root.
func (r *Runtime) Filesystem(ctx context.Context) (policy.Filesystem, error) {
	path, err := r.imagePath(ctx)
	if err != nil {
		return policy.Filesystem{}, err
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return policy.Filesystem{}, fmt.Errorf("cri %s: image filesystem %s: %w", r.socket, path, err)
	}
	block := uint64(stat.Frsize)
	return policy.Filesystem{Path: path, Size: int64(stat.Blocks * block), Free: int64(stat.Bavail * block)}, nil
}

// Snapshotter returns the name of the runtime's snapshotter, from its directory. It returns an error for another path:
// with a wrong snapshotter, all images would be unpacked twice.
func (r *Runtime) Snapshotter(ctx context.Context) (string, error) {
	path, err := r.imagePath(ctx)
	if err != nil {
		return "", err
	}
	name, ok := strings.CutPrefix(filepath.Base(path), snapshotterPrefix)
	if !ok || name == "" {
		return "", fmt.Errorf("cri %s: image filesystem %s: the path has no snapshotter: set containerd.snapshotter",
			r.socket, path)
	}
	return name, nil
}

// imagePath returns the mount point of the image file system.
func (r *Runtime) imagePath(ctx context.Context) (path string, err error) {
	err = r.with(ctx, callTimeout, func(ctx context.Context, c session) error {
		answer, err := c.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
		if err != nil {
			return fmt.Errorf("image filesystem: %w", readable(err))
		}
		// The first belongs to the default snapshotter; kubelet reads no other.
		if all := answer.GetImageFilesystems(); len(all) > 0 {
			path = all[0].GetFsId().GetMountpoint()
		}
		if path == "" {
			return errors.New("image filesystem: the runtime reports none")
		}
		return nil
	})
	return path, err
}
