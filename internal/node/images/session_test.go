// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	version "github.com/containerd/containerd/api/services/version/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// The agent waits until the timeout for a containerd that stops during a pull and does not restart.
func TestStageWaitsForContainerdToRestart(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "dies.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 2 { // the probe, and the session
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
		_ = listener.Close()
	}()
	store, err := New(Options{Socket: socket, Source: from{}})
	require.NoError(t, err)
	store.reconnectTimeout = 3 * reconnectInterval
	release := release.Release{Repository: "suse.com/a", Long: "1-rev1-build1", Digest: someDigest}
	err = store.Stage(t.Context(), release, node.StageOptions{})
	<-ended
	require.ErrorIs(t, err, errAway)
	assert.ErrorContains(t, err, "containerd "+socket+": "+digestName(release)+": stopped during a pull")
	assert.ErrorContains(t, err, "no such file")
	assert.Empty(t, store.staging)
}

// answering is a containerd that names its version.
type answering struct {
	version.UnimplementedVersionServer
}

func (answering) Version(context.Context, *emptypb.Empty) (*version.VersionResponse, error) {
	return &version.VersionResponse{}, nil
}

// A containerd that answers, and in which every attempt fails on the remains of a kill, is not asked without end.
func TestRestartsInOneStagingAreBounded(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "remains.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	remains := func(any, grpc.ServerStream) error { return syscall.EEXIST }
	server := grpc.NewServer(grpc.UnknownServiceHandler(remains))
	version.RegisterVersionServer(server, answering{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	store, err := New(Options{
		Socket: socket, Source: from{}, Snapshotter: func(context.Context) (string, error) { return "native", nil },
	})
	require.NoError(t, err)
	release := release.Release{Repository: "suse.com/a", Long: "1-rev1-build1", Digest: someDigest}
	err = store.Stage(t.Context(), release, node.StageOptions{})
	assert.ErrorContains(t, err, fmt.Sprintf("after %d restarts", maxRestarts))
}

// A session does not reconnect, because that could be another containerd.
func TestLinkIsOneConnection(t *testing.T) {
	t.Parallel()
	l := newLink()
	here, there := net.Pipe()
	conn, err := l.dial(t.Context(), "", func(context.Context, string) (net.Conn, error) { return here, nil })
	require.NoError(t, err)
	ctx, cancel := l.bind(t.Context())
	defer cancel()
	assert.False(t, l.isLost())
	require.NoError(t, there.Close())
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), errConnectionLost)
	_, err = l.dial(t.Context(), "", nil)
	require.ErrorIs(t, err, errConnectionLost)
}

func TestSnapshotterIsAskedOnce(t *testing.T) {
	t.Parallel()
	c := sessionOn(t, &fakeRecords{})
	asked, answer := 0, errBroken
	c.snapshotter = func(context.Context) (string, error) {
		asked++
		return "native", answer
	}
	_, err := c.snapshotterName(t.Context())
	require.ErrorIs(t, err, errBroken, "never guessed")
	answer = nil
	for range 2 {
		name, err := c.snapshotterName(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "native", name)
	}
	assert.Equal(t, 2, asked)
	c = sessionOn(t, &fakeRecords{})
	c.snapshotter = func(context.Context) (string, error) { return "", nil }
	_, err = c.snapshotterName(t.Context())
	assert.EqualError(t, err, "snapshotter: has no name")
}

// Whether the content is kept for the next attempt, by the error.
func TestKeepsLease(t *testing.T) {
	t.Parallel()
	broken := fromRegistry(errors.New("connection reset"))
	for name, is := range map[string]struct {
		err     error
		brought int
		resumes bool
		want    bool
	}{
		"broken in a layer":           {broken, 1, false, true},
		"broken before a layer":       {broken, 0, false, false},
		"broken before the next byte": {broken, 0, true, true},
		"cancelled":                   {context.Canceled, 1, false, true},
		"disk full":                   {release.ErrNoSpace, 1, true, false},
		"vanished":                    {fromRegistry(release.ErrNotFound), 1, true, false},
		"for another platform":        {release.ErrPlatform, 1, true, false},
		"no room":                     {&spaceError{release.ErrHeld}, 0, false, false},
		"no room for the rest of it":  {&spaceError{release.ErrHeld}, 0, true, true},
	} {
		j := &job{resumes: is.resumes}
		j.addFetched(is.brought)
		assert.Equal(t, is.want, j.keepsLease(is.err), name)
	}
}

// containerd quotes registries, in texts of any length.
func TestErrorsOfContainerdAreOneLine(t *testing.T) {
	t.Parallel()
	c := sessionOn(t, &fakeRecords{})
	err := c.wrapError(fmt.Errorf("%s\x1b: %w", strings.Repeat("x", 1<<20), errBroken))
	require.ErrorIs(t, err, errBroken)
	assert.Equal(t, outside.Line(err.Error(), outside.MaxError), err.Error())
}
