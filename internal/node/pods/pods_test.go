// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

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
	f.sandbox = func(ctx context.Context, _ string) (*cri.PodSandboxStatus, error) {
		until(ctx)
		return &cri.PodSandboxStatus{}, nil
	}
	r, _ := serve(t, f)
	_, _, err := r.Containers(t.Context())
	require.NoError(t, err)
	assert.LessOrEqual(t, left, callTimeout)
	left = time.Hour
	_, err = r.SandboxReady(t.Context(), "s1")
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

var (
	config   = digest.FromString("config")
	manifest = digest.FromString("manifest")
	index    = digest.FromString("index")
)

func container(id, uid, name string, attempt uint32, created int64) *cri.Container {
	return &cri.Container{
		Id: id, PodSandboxId: "sandbox-" + uid, CreatedAt: created,
		Metadata: &cri.ContainerMetadata{Name: name, Attempt: attempt},
		Labels: map[string]string{
			labelContainer: name, labelPodName: "velum-node1", labelNamespace: "kube-system", labelPodUID: uid,
		},
	}
}

func ids(containers []*cri.Container) []string {
	all := make([]string, 0, len(containers))
	for _, c := range containers {
		all = append(all, c.GetId())
	}
	return all
}

func TestNewest(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]struct {
		containers []*cri.Container
		want       []string
	}{
		"none":       {nil, []string{}},
		"by attempt": {[]*cri.Container{container("b", "u", "velum", 1, 5), container("a", "u", "velum", 0, 3)}, []string{"b"}},
		"the clock went back": {
			[]*cri.Container{container("a", "u", "velum", 0, 9), container("b", "u", "velum", 1, 3)}, []string{"b"},
		},
		"same attempt in a new sandbox": {
			[]*cri.Container{container("a", "u", "velum", 0, 3), container("b", "u", "velum", 0, 9)}, []string{"b"},
		},
		"init container beside": {
			[]*cri.Container{container("a", "u", "velum", 0, 3), container("i", "u", "init", 0, 1)}, []string{"i", "a"},
		},
		"changed pod, old one lingers": {
			[]*cri.Container{container("b", "new", "velum", 0, 9), container("a", "old", "velum", 4, 3)}, []string{"b", "a"},
		},
		"without metadata": {[]*cri.Container{{Id: "x"}}, []string{"x"}},
	} {
		assert.Equal(t, list.want, ids(newest(list.containers)), name)
	}
}

func TestNewestProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.SampledFrom([]string{"a", "b", "c"})
		containers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *cri.Container {
			return container(rapid.StringN(1, 4, 8).Draw(t, "id"), few.Draw(t, "uid"), few.Draw(t, "name"),
				rapid.Uint32Range(0, 3).Draw(t, "attempt"), rapid.Int64Range(0, 3).Draw(t, "created"))
		}), 0, 12).Draw(t, "containers")
		kept := newest(containers)
		assert.ElementsMatch(t, ids(kept), ids(newest(kept)), "idempotent")
		shuffled := rapid.Permutation(containers).Draw(t, "shuffled")
		assert.Equal(t, ids(kept), ids(newest(shuffled)), "the order of the list does not matter")
		for _, c := range containers {
			var one *cri.Container
			for _, k := range kept {
				if identify(k) == identify(c) {
					require.Nil(t, one, "two of one")
					one = k
				}
			}
			require.NotNil(t, one, "lost one")
			assert.GreaterOrEqual(t, one.GetMetadata().GetAttempt(), c.GetMetadata().GetAttempt())
		}
	})
}

func TestStatic(t *testing.T) {
	t.Parallel()
	file, api, bare := container("f", "file", "velum", 0, 1), container("a", "api", "app", 0, 1), container("b", "bare", "x", 0, 1)
	lost := container("l", "gone", "velum", 0, 1)
	sandboxes := []*cri.PodSandbox{
		{Id: "sandbox-file", Annotations: map[string]string{annotationSource: "file"}},
		{Id: "sandbox-api", Annotations: map[string]string{annotationSource: "api"}},
		{Id: "sandbox-bare", Labels: map[string]string{annotationSource: "file"}},
	}
	all := []*cri.Container{api, file, bare, lost}
	assert.Equal(t, []string{"f"}, ids(static(sandboxes, all)))
	assert.Equal(t, []string{"a", "f", "b", "l"}, ids(all), "the argument is left alone")
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	known := repoDigests([]*cri.Image{
		{Id: config.String(), RepoDigests: []string{
			"suse.com/velum@" + manifest.String(), "mirror:5000/velum@" + manifest.String(), "suse.com/velum@" + index.String(),
			"suse.com/velum@sha256:broken", "suse.com/velum",
		}},
		{Id: "sha256:other", RepoDigests: []string{"suse.com/other@" + manifest.String()}},
	})
	c := container("id1", "uid", "velum", 3, 1)
	c.ImageRef = config.String()
	status := &cri.ContainerStatus{State: cri.ContainerState_CONTAINER_EXITED, StartedAt: 1_000_000_007, ExitCode: 137}
	assert.Equal(t, node.Container{
		ID: "id1", Sandbox: "sandbox-uid", Pod: "velum-node1", Namespace: "kube-system", Name: "velum",
		StartedAt: time.Unix(1, 7), ExitCode: 137, Restarts: 3, Image: config, Digests: []digest.Digest{manifest, index},
	}, describe(c, status, known))

	status = &cri.ContainerStatus{State: cri.ContainerState_CONTAINER_RUNNING}
	running := describe(c, status, nil)
	assert.True(t, running.Running)
	assert.Zero(t, running.StartedAt, "created, not started")
	assert.NotPanics(t, func() { describe(&cri.Container{}, nil, nil) })
}

func TestImageID(t *testing.T) {
	t.Parallel()
	for where, c := range map[string]*cri.Container{
		"image id":  {ImageId: config.String(), ImageRef: "suse.com/velum@" + manifest.String()},
		"image ref": {ImageRef: config.String(), Image: &cri.ImageSpec{Image: "suse.com/velum:1"}},
		"image":     {ImageRef: "suse.com/velum@" + manifest.String(), Image: &cri.ImageSpec{Image: config.String()}},
	} {
		assert.Equal(t, config, imageID(c), where)
	}
	assert.Empty(t, imageID(&cri.Container{ImageRef: "suse.com/velum:1"}))
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for grace, want := range map[time.Duration]int64{
		time.Nanosecond: 1, time.Second: 1, 1500 * time.Millisecond: 2, 30 * time.Second: 30,
	} {
		assert.Equal(t, want, seconds(grace), grace)
	}
}

// filesystems returns an answer of ImageFsInfo.
func filesystems(paths ...string) func() (*cri.ImageFsInfoResponse, error) {
	answer := &cri.ImageFsInfoResponse{}
	for _, path := range paths {
		answer.ImageFilesystems = append(answer.ImageFilesystems,
			&cri.FilesystemUsage{FsId: &cri.FilesystemIdentifier{Mountpoint: path}})
	}
	return func() (*cri.ImageFsInfoResponse, error) { return answer, nil }
}

// A filesystem with known figures distinguishes bytes from blocks, and free from used space.
func TestFilesystemFigures(t *testing.T) {
	t.Parallel()
	const size, used = 16 << 20, 3 << 20
	dir := t.TempDir()
	require.NoError(t, unix.Mount("none", dir, "tmpfs", 0, "size=16m"))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	r, _ := serve(t, &fakeRuntime{filesystem: filesystems(dir, "/nowhere")})
	empty, err := r.Filesystem(t.Context())
	require.NoError(t, err)
	assert.Equal(t, dir, empty.Path)
	assert.EqualValues(t, size, empty.Size)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "layer"), make([]byte, used), 0o600))
	full, err := r.Filesystem(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, size, full.Size)
	assert.EqualValues(t, used, empty.Free-full.Free)
}

func TestSnapshotter(t *testing.T) {
	t.Parallel()
	for path, name := range map[string]string{
		"/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs": "overlayfs",
		"/var/lib/containerd/io.containerd.snapshotter.v1.native/":   "native",
		"/io.containerd.snapshotter.v1.x.y":                          "x.y",
	} {
		r, _ := serve(t, &fakeRuntime{filesystem: filesystems(path, "/a/io.containerd.snapshotter.v1.zfs")})
		got, err := r.Snapshotter(t.Context())
		require.NoError(t, err, path)
		assert.Equal(t, name, got)
	}
}

// oddFilesystems are unusable answers of CRI, with the errors for the filesystem and for the snapshotter; empty: no
// error.
var oddFilesystems = map[string]struct {
	answer                  func() (*cri.ImageFsInfoResponse, error)
	filesystem, snapshotter string
}{
	"none": {filesystems(), "image filesystem: the runtime reports none", "image filesystem: the runtime reports none"},
	"no mount point": {
		filesystems("", "/a/io.containerd.snapshotter.v1.zfs"), // another snapshotter's directory does not count
		"image filesystem: the runtime reports none", "image filesystem: the runtime reports none",
	},
	"without an id": {
		func() (*cri.ImageFsInfoResponse, error) {
			return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{{}}}, nil
		},
		"image filesystem: the runtime reports none", "image filesystem: the runtime reports none",
	},
	"not there": {
		filesystems("/nowhere/io.containerd.snapshotter.v1.native"),
		"image filesystem /nowhere/io.containerd.snapshotter.v1.native: no such file or directory", "",
	},
	"a path of its own": {
		filesystems("/"), "", "image filesystem /: the path has no snapshotter: set containerd.snapshotter",
	},
	"a snapshotter without a name": {
		filesystems("/io.containerd.snapshotter.v1."),
		"image filesystem /io.containerd.snapshotter.v1.: no such file or directory",
		"image filesystem /io.containerd.snapshotter.v1.: the path has no snapshotter: set containerd.snapshotter",
	},
	"below a snapshotter's": {
		filesystems("/io.containerd.snapshotter.v1.native/data"),
		"image filesystem /io.containerd.snapshotter.v1.native/data: no such file or directory",
		"image filesystem /io.containerd.snapshotter.v1.native/data: the path has no snapshotter: set containerd.snapshotter",
	},
	"an error": {
		func() (*cri.ImageFsInfoResponse, error) { return nil, status.Error(codes.Unavailable, "starting") },
		"image filesystem: Unavailable: starting", "image filesystem: Unavailable: starting",
	},
}

func TestOddFilesystems(t *testing.T) {
	t.Parallel()
	for name, odd := range oddFilesystems {
		r, socket := serve(t, &fakeRuntime{filesystem: odd.answer})
		says := func(want string, err error) {
			if want == "" {
				assert.NoError(t, err, name)
			} else {
				assert.EqualError(t, err, "cri "+socket+": "+want, name)
			}
		}
		_, err := r.Filesystem(t.Context())
		says(odd.filesystem, err)
		_, err = r.Snapshotter(t.Context())
		says(odd.snapshotter, err)
	}
}

// Every container that has not been removed counts: ended ones, those of other pods, and those whose sandbox is gone.
func TestUsed(t *testing.T) {
	t.Parallel()
	f := oneContainer()
	other := container("id2", "api", "app", 0, 1)
	other.ImageId = digest.FromString("app").String()
	ended := container("id3", "uid", "velum", 1, 2)
	ended.ImageRef, ended.State = digest.FromString("old").String(), cri.ContainerState_CONTAINER_EXITED
	unknown := container("id4", "gone", "x", 0, 1)
	f.containers[0].ImageRef = config.String()
	f.containers = append(f.containers, other, ended, unknown)
	r, _ := serve(t, f)
	found, used, err := r.Containers(t.Context())
	require.NoError(t, err)
	assert.Len(t, found, 1)
	assert.ElementsMatch(t, []digest.Digest{config, digest.FromString("app"), digest.FromString("old")}, used)

	// A container that was removed during the status query still counts.
	f.status = func(context.Context) (*cri.ContainerStatusResponse, error) {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	found, used, err = r.Containers(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
	assert.Len(t, used, 3)
}

func (f *fakeRuntime) Status(_ context.Context, r *cri.StatusRequest) (*cri.StatusResponse, error) {
	if !r.GetVerbose() {
		return &cri.StatusResponse{}, nil
	}
	return &cri.StatusResponse{Info: map[string]string{"config": f.config}}, nil
}

func TestConfigPathOfTheRunningContainerd(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		path   string
		known  bool
		failed bool
	}{
		`{"registry": {"configPath": "/etc/containerd/certs.d", "mirrors": null}, "sandboxImage": "pause"}`: {path: "/etc/containerd/certs.d", known: true},
		`{"registry": {"configPath": ""}}`:     {known: true}, // without one
		`{"containerdRootDir": "/var/lib"}`:    {},            // 2.x
		`{"registry": {"mirrors": {}}}`:        {},            // before 1.5
		``:                                     {},
		`{"registry": {"configPath": ["/a"]}}`: {failed: true},
		`registry`:                             {failed: true},
	} {
		r, _ := serve(t, &fakeRuntime{config: text})
		path, known, err := r.ConfigPath(t.Context())
		require.Equal(t, want.failed, err != nil, text)
		assert.Equal(t, want.path, path, text)
		assert.Equal(t, want.known, known, text)
	}
}

func TestContainerdIsAskedOnceUntilItRestarts(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	start := func() net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
		require.NoError(t, err)
		return l
	}
	asked, answer := 0, errors.New("starting")
	get := UntilRestart(socket, func(context.Context) (string, error) {
		asked++
		return "overlayfs", answer
	})
	first := start()
	for range 2 {
		_, err := get(t.Context())
		require.Error(t, err)
	}
	assert.Equal(t, 2, asked, "an error is not cached")
	answer = nil
	for range 3 {
		name, err := get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "overlayfs", name)
	}
	assert.Equal(t, 3, asked)
	require.NoError(t, first.Close())
	_, err := os.Stat(socket)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = get(t.Context())
	require.NoError(t, err)
	second := start()
	defer func() { _ = second.Close() }()
	_, err = get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 5, asked, "another socket, another containerd")
}

// sandboxIn returns the status of a sandbox in a network.
func sandboxIn(mode cri.NamespaceMode, network *cri.PodSandboxNetworkStatus) *cri.PodSandboxStatus {
	return &cri.PodSandboxStatus{
		State: cri.PodSandboxState_SANDBOX_READY, Network: network,
		Linux: &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: &cri.NamespaceOption{Network: mode}}},
	}
}

func TestSandboxOfAServer(t *testing.T) {
	t.Parallel()
	dual := &cri.PodSandboxNetworkStatus{Ip: "10.0.0.7", AdditionalIps: []*cri.PodIP{{Ip: "fd00::7"}}}
	down := sandboxIn(cri.NamespaceMode_POD, nil)
	down.State = cri.PodSandboxState_SANDBOX_NOTREADY
	for name, is := range map[string]struct {
		status  *cri.PodSandboxStatus
		ready   bool
		address string
	}{
		"network of its own":               {sandboxIn(cri.NamespaceMode_POD, dual), true, "10.0.0.7"},
		"host network of containerd":       {sandboxIn(cri.NamespaceMode_NODE, &cri.PodSandboxNetworkStatus{}), true, ""},
		"host network, no network at all":  {sandboxIn(cri.NamespaceMode_NODE, nil), true, ""},
		"host network with the host's own": {sandboxIn(cri.NamespaceMode_NODE, dual), true, ""},
		"down":                             {down, false, ""},
		"says only that it is ready":       {&cri.PodSandboxStatus{}, true, ""},
	} {
		f := &fakeRuntime{sandbox: func(context.Context, string) (*cri.PodSandboxStatus, error) { return is.status, nil }}
		r, _ := serve(t, f)
		ready, err := r.SandboxReady(t.Context(), "s1")
		require.NoError(t, err, name)
		assert.Equal(t, is.ready, ready, name)
		address, err := r.Address(t.Context(), "s1")
		require.NoError(t, err, name)
		assert.Equal(t, is.address, address, name)
	}
}

func TestSandboxFaults(t *testing.T) {
	t.Parallel()
	var asked string
	var answer error
	f := &fakeRuntime{sandbox: func(_ context.Context, id string) (*cri.PodSandboxStatus, error) {
		asked = id
		return nil, answer
	}}
	r, socket := serve(t, f)
	place := "cri " + socket + ": sandbox s1: "

	answer = status.Error(codes.NotFound, "no such sandbox")
	ready, err := r.SandboxReady(t.Context(), "s1")
	require.NoError(t, err, "what is gone is not up")
	assert.False(t, ready)
	assert.Equal(t, "s1", asked)
	_, err = r.Address(t.Context(), "s1")
	require.ErrorIs(t, err, release.ErrNotFound, "no address would pass for the host's")
	assert.EqualError(t, err, place+"not found: no such sandbox")

	for cause, words := range map[error]string{
		status.Error(codes.Unavailable, "shutting down"): "Unavailable: shutting down",
		nil: "the runtime reports no status", // whose zero value means ready
	} {
		answer = cause
		ready, err = r.SandboxReady(t.Context(), "s1")
		assert.False(t, ready)
		require.EqualError(t, err, place+words)
		_, err = r.Address(t.Context(), "s1")
		assert.EqualError(t, err, place+words)
	}
}
