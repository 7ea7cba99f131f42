// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"math"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRuntime is a CRI server on a real socket with the test's answers.
type fakeRuntime struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer

	sandboxes  []*cri.PodSandbox
	containers []*cri.Container
	images     []*cri.Image
	status     func(context.Context) (*cri.ContainerStatusResponse, error)
	stop       func(context.Context, *cri.StopContainerRequest) error
	removed    []string
	remove     func() error
	sandbox    func(ctx context.Context, id string) (*cri.PodSandboxStatus, error)
	image      *cri.ImageStatusResponse
	pull       func() (*cri.PullImageResponse, error)
	filesystem func() (*cri.ImageFsInfoResponse, error)
	config     string // of its verbose status
}

func (f *fakeRuntime) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: f.sandboxes}, nil
}

func (f *fakeRuntime) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: f.containers}, nil
}

func (f *fakeRuntime) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	return &cri.ListImagesResponse{Images: f.images}, nil
}

func (f *fakeRuntime) ContainerStatus(ctx context.Context, _ *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	if f.status == nil {
		return &cri.ContainerStatusResponse{}, nil // running since 1970
	}
	return f.status(ctx)
}

func (f *fakeRuntime) StopContainer(ctx context.Context, r *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	return &cri.StopContainerResponse{}, f.stop(ctx, r)
}

func (f *fakeRuntime) RemoveContainer(_ context.Context, r *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	f.removed = append(f.removed, r.GetContainerId())
	if f.remove == nil {
		return &cri.RemoveContainerResponse{}, nil
	}
	return &cri.RemoveContainerResponse{}, f.remove()
}

func (f *fakeRuntime) PodSandboxStatus(ctx context.Context, r *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	is, err := f.sandbox(ctx, r.GetPodSandboxId())
	return &cri.PodSandboxStatusResponse{Status: is}, err
}

func (f *fakeRuntime) ImageStatus(context.Context, *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	return f.image, nil
}

func (f *fakeRuntime) PullImage(context.Context, *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	return f.pull()
}

func (f *fakeRuntime) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	return f.filesystem()
}

// serve starts f and returns a Runtime on it, with its socket.
func serve(t *testing.T, f *fakeRuntime) (*Runtime, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, f)
	cri.RegisterImageServiceServer(server, f)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	r, err := New(Options{Socket: socket})
	require.NoError(t, err)
	return r, socket
}

func oneContainer() *fakeRuntime {
	return &fakeRuntime{
		sandboxes:  []*cri.PodSandbox{{Id: "sandbox-uid", Annotations: map[string]string{annotationSource: fromFile}}},
		containers: []*cri.Container{container("id1", "uid", "velum", 0, 1)},
		status: func(context.Context) (*cri.ContainerStatusResponse, error) {
			return &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{State: cri.ContainerState_CONTAINER_RUNNING}}, nil
		},
	}
}

func TestContainersOfAServer(t *testing.T) {
	t.Parallel()
	f := oneContainer()
	r, socket := serve(t, f)
	found, _, err := r.Containers(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.True(t, found[0].Running)

	f.status = func(context.Context) (*cri.ContainerStatusResponse, error) {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	found, _, err = r.Containers(t.Context())
	require.NoError(t, err, "a container that was removed since it was listed")
	assert.Empty(t, found)

	f.status = func(context.Context) (*cri.ContainerStatusResponse, error) {
		return nil, status.Error(codes.Unknown, "disk on fire")
	}
	_, _, err = r.Containers(t.Context())
	assert.EqualError(t, err, "cri "+socket+": container id1: disk on fire")
}

// The list says that a container runs, but not since when: that is asked once.
func TestStatusOfARunningContainerIsAskedOnce(t *testing.T) {
	t.Parallel()
	f := oneContainer()
	asked := 0
	f.status = func(context.Context) (*cri.ContainerStatusResponse, error) {
		asked++
		return &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{State: f.containers[0].GetState(), StartedAt: 7, ExitCode: int32(asked)}}, nil
	}
	r, _ := serve(t, f)
	list := func() node.Container {
		t.Helper()
		found, _, err := r.Containers(t.Context())
		require.NoError(t, err)
		require.Len(t, found, 1)
		return found[0]
	}
	f.containers[0].State = cri.ContainerState_CONTAINER_RUNNING
	for range 3 {
		is := list()
		assert.True(t, is.Running)
		assert.Equal(t, time.Unix(0, 7), is.StartedAt)
	}
	assert.Equal(t, 1, asked)
	f.containers[0].State = cri.ContainerState_CONTAINER_EXITED
	for want := range 2 {
		is := list()
		assert.False(t, is.Running)
		assert.Equal(t, int32(2+want), is.ExitCode, "the status of an ended container is asked each time")
	}
	f.containers[0].State = cri.ContainerState_CONTAINER_RUNNING
	list()
	assert.Equal(t, 4, asked, "an ended container is forgotten")
}

func TestNoSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "none.sock")
	r, err := New(Options{Socket: socket})
	require.NoError(t, err)
	_, _, err = r.Containers(t.Context())
	assert.EqualError(t, err, "cri "+socket+": connect: no such file or directory")
}

// An answer that kubelet would reject is rejected here, too.
func TestAnswerTooLarge(t *testing.T) {
	t.Parallel()
	f := oneContainer()
	f.images = []*cri.Image{{Id: strings.Repeat("x", maxMessage)}}
	r, _ := serve(t, f)
	_, _, err := r.Containers(t.Context())
	require.ErrorContains(t, err, "list images: ")
	assert.ErrorContains(t, err, "larger than max")
	f.images = []*cri.Image{{Id: strings.Repeat("x", 5<<20)}} // more than gRPC's own limit of 4 MiB
	_, _, err = r.Containers(t.Context())
	assert.NoError(t, err)
}

func TestOldServer(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer()
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	r, err := New(Options{Socket: socket})
	require.NoError(t, err)
	_, _, err = r.Containers(t.Context())
	assert.EqualError(t, err, "cri "+socket+": list sandboxes: Unimplemented: unknown service runtime.v1.RuntimeService")
}

// A call to a runtime that does not answer ends at the deadline.
func TestHungServer(t *testing.T) {
	t.Parallel()
	f := oneContainer()
	entered := make(chan struct{})
	f.status = func(ctx context.Context) (*cri.ContainerStatusResponse, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r, _ := serve(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_, _, err := r.Containers(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestCallsHaveDeadlines(t *testing.T) {
	t.Parallel()
	f := oneContainer()
	var left time.Duration
	until := func(ctx context.Context) {
		deadline, ok := ctx.Deadline()
		assert.True(t, ok)
		left = time.Until(deadline)
	}
	f.status = func(ctx context.Context) (*cri.ContainerStatusResponse, error) {
		until(ctx)
		return &cri.ContainerStatusResponse{}, nil
	}
	f.stop = func(ctx context.Context, _ *cri.StopContainerRequest) error { until(ctx); return nil }
	r, _ := serve(t, f)
	_, _, err := r.Containers(t.Context())
	require.NoError(t, err)
	assert.LessOrEqual(t, left, callTimeout)
	require.NoError(t, r.Stop(t.Context(), "id1", 30*time.Second))
	assert.Greater(t, left, 30*time.Second, "the runtime needs the whole grace")
	assert.LessOrEqual(t, left, 30*time.Second+stopMargin)
}

func TestStop(t *testing.T) {
	t.Parallel()
	var asked *cri.StopContainerRequest
	var answer error
	f := &fakeRuntime{stop: func(_ context.Context, r *cri.StopContainerRequest) error { asked = r; return answer }}
	r, socket := serve(t, f)
	require.NoError(t, r.Stop(t.Context(), "id1", 30*time.Second))
	assert.Equal(t, "id1", asked.GetContainerId())
	assert.EqualValues(t, 30, asked.GetTimeout())
	assert.Equal(t, []string{"id1"}, f.removed, "kubelet would let one that has ended wait")

	answer = status.Error(codes.NotFound, "unknown")
	f.remove = func() error { return answer }
	require.NoError(t, r.Stop(t.Context(), "id1", 0), "what is gone is stopped")
	answer = status.Error(codes.Unavailable, "shutting down")
	require.EqualError(t, r.Stop(t.Context(), "id1", 0), "cri "+socket+": stop container id1: Unavailable: shutting down")
	f.stop = func(context.Context, *cri.StopContainerRequest) error { return nil }
	assert.EqualError(t, r.Stop(t.Context(), "id1", 0), "cri "+socket+": remove container id1: Unavailable: shutting down")
}

// A container that kubelet has not seen yet would not be replaced.
func TestStopWaitsUntilKubeletKnowsTheContainer(t *testing.T) {
	t.Parallel()
	started := time.Now()
	var stopped time.Time
	f := &fakeRuntime{
		status: func(context.Context) (*cri.ContainerStatusResponse, error) {
			return &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{StartedAt: started.UnixNano()}}, nil
		},
		stop: func(context.Context, *cri.StopContainerRequest) error { stopped = time.Now(); return nil },
	}
	r, _ := serve(t, f)
	require.NoError(t, r.Stop(t.Context(), "id1", 0))
	assert.GreaterOrEqual(t, stopped.Sub(started), minAge)
	started = started.Add(time.Hour) // by a wrong clock
	began := time.Now()
	require.NoError(t, r.Stop(t.Context(), "id1", 0))
	assert.GreaterOrEqual(t, stopped.Sub(began), minAge)
}

// containerd may still report a container as running that ended during the stop, and it does not remove a running one.
func TestStopWaitsUntilTheRuntimeReportsTheEnd(t *testing.T) {
	t.Parallel()
	looks := 0
	f := &fakeRuntime{stop: func(context.Context, *cri.StopContainerRequest) error { return nil }}
	ctx, end := context.WithCancel(t.Context())
	f.status = func(context.Context) (*cri.ContainerStatusResponse, error) {
		is := cri.ContainerState_CONTAINER_RUNNING
		if looks++; looks == math.MinInt+5 {
			end() // it ends during a query or between two
		}
		if looks > 3 {
			is = cri.ContainerState_CONTAINER_EXITED
		}
		return &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{State: is}}, nil
	}
	f.remove = func() error {
		if looks <= 3 {
			return status.Error(codes.Unknown, "container is still running, to stop first")
		}
		return nil
	}
	r, socket := serve(t, f)
	require.NoError(t, r.Stop(t.Context(), "id1", 0))
	assert.Equal(t, []string{"id1"}, f.removed)

	looks = math.MinInt
	err := r.Stop(ctx, "id1", 0)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "cri "+socket+": stop container id1: cannot see its end: ")
	assert.Len(t, f.removed, 1)
}

// A container whose status is unknown may be running: it is neither stopped before kubelet knows it nor removed. A
// container that is gone counts as stopped.
func TestStopReportsStatusErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		at    int // index of the failing query
		with  error
		err   string
		calls string
	}{
		"before the stop":       {1, status.Error(codes.Unavailable, "busy"), "stop container id1: Unavailable: busy", ""},
		"after it":              {2, status.Error(codes.Unavailable, "busy"), "stop container id1: cannot see its end: Unavailable: busy", "stop "},
		"after it, out of time": {2, context.DeadlineExceeded, "stop container id1: cannot see its end: context deadline exceeded: ", "stop "},
		"gone before the stop":  {1, status.Error(codes.NotFound, "unknown"), "", "stop remove "},
		"gone after it":         {2, status.Error(codes.NotFound, "unknown"), "", "stop remove "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls, seen := "", 0
			f := &fakeRuntime{
				stop:   func(context.Context, *cri.StopContainerRequest) error { calls += "stop "; return nil },
				remove: func() error { calls += "remove "; return nil },
			}
			f.status = func(context.Context) (*cri.ContainerStatusResponse, error) {
				if seen++; seen == c.at {
					return nil, c.with
				}
				return &cri.ContainerStatusResponse{}, nil
			}
			r, _ := serve(t, f)

			err := r.Stop(t.Context(), "id1", 0)

			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
			assert.Equal(t, c.calls, calls)
		})
	}
}

func TestClear(t *testing.T) {
	t.Parallel()
	f := &fakeRuntime{containers: []*cri.Container{{Id: "a"}, {Id: "b"}}}
	r, socket := serve(t, f)
	require.NoError(t, r.Clear(t.Context(), "s1"))
	assert.Equal(t, []string{"a", "b"}, f.removed)
	f.remove = func() error { return status.Error(codes.Unavailable, "shutting down") }
	assert.EqualError(t, r.Clear(t.Context(), "s1"), "cri "+socket+": remove container a: Unavailable: shutting down")
}

func TestLists(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]struct {
		response *cri.ImageStatusResponse
		id       digest.Digest
		listed   bool
		err      string
	}{
		"listed":        {response: &cri.ImageStatusResponse{Image: &cri.Image{Id: config.String()}}, id: config, listed: true},
		"not listed":    {response: &cri.ImageStatusResponse{}},
		"id is no hash": {response: &cri.ImageStatusResponse{Image: &cri.Image{Id: "4711"}}, err: "image suse.com/velum:1: "},
	} {
		r, _ := serve(t, &fakeRuntime{image: answer.response})
		id, listed, err := r.Lists(t.Context(), "suse.com/velum:1")
		assert.Equal(t, answer.listed, listed, name)
		assert.Equal(t, answer.id, id, name)
		if answer.err == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, answer.err, name)
		}
	}
}

func TestPull(t *testing.T) {
	t.Parallel()
	f := &fakeRuntime{}
	r, socket := serve(t, f)
	ref := release.Reference{Repository: "suse.com/velum", Tag: "1"}
	f.pull = func() (*cri.PullImageResponse, error) { return &cri.PullImageResponse{ImageRef: config.String()}, nil }
	id, err := r.Pull(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, config, id)

	f.pull = func() (*cri.PullImageResponse, error) { return nil, status.Error(codes.NotFound, "no such tag") }
	_, err = r.Pull(t.Context(), ref)
	require.ErrorIs(t, err, release.ErrNotFound)
	assert.EqualError(t, err, "cri "+socket+": pull suse.com/velum:1: not found: no such tag")

	f.pull = func() (*cri.PullImageResponse, error) { return &cri.PullImageResponse{ImageRef: "velum"}, nil }
	id, err = r.Pull(t.Context(), ref)
	require.ErrorContains(t, err, "pull suse.com/velum:1: ")
	assert.Empty(t, id)
	f.pull = func() (*cri.PullImageResponse, error) { return nil, errors.New("registry away") }
	_, err = r.Pull(t.Context(), ref)
	assert.EqualError(t, err, "cri "+socket+": pull suse.com/velum:1: registry away")
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Socket: "cri.sock"})
	assert.EqualError(t, err, `cri "cri.sock": not an absolute path`)
	_, err = New(Options{Socket: "/cri.sock", Pull: -1})
	assert.EqualError(t, err, "cri /cri.sock: negative time")
}

// The runtime quotes registries and programs, in texts of any length.
func TestRuntimeErrorsAreOneLine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x\n", 1<<15)
	r, _ := serve(t, &fakeRuntime{pull: func() (*cri.PullImageResponse, error) { return nil, status.Error(codes.Unknown, long) }})
	_, err := r.Pull(t.Context(), release.Reference{Repository: "registry.suse.com/a", Tag: "1"})
	require.Error(t, err)
	assert.Equal(t, outside.Line(err.Error(), outside.MaxError), err.Error())
	found := describe(&cri.Container{}, &cri.ContainerStatus{
		State: cri.ContainerState_CONTAINER_EXITED, Reason: long, Message: long,
	}, nil)
	assert.Equal(t, []string{outside.Text(long), outside.Text(long)}, []string{found.Reason, found.Message})
}
