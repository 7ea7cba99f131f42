// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// fakeRecords is an image store in memory; writing names in broken fails.
type fakeRecords struct {
	images.Store
	records map[string]images.Image
	broken  string
	wrote   []string // names, in order
}

var errBroken = errors.New("broken")

func (f *fakeRecords) Get(_ context.Context, name string) (images.Image, error) {
	if record, ok := f.records[name]; ok {
		return record, nil
	}
	return images.Image{}, errdefs.ErrNotFound
}

func (f *fakeRecords) List(_ context.Context, filters ...string) (all []images.Image, err error) {
	for _, record := range f.records {
		if len(filters) == 0 || slices.Contains(filters, "target.digest=="+record.Target.Digest.String()) {
			all = append(all, record)
		}
	}
	return all, nil
}

func (f *fakeRecords) Create(_ context.Context, i images.Image) (images.Image, error) {
	if _, ok := f.records[i.Name]; ok {
		return i, errdefs.ErrAlreadyExists
	}
	return f.write(i)
}

func (f *fakeRecords) Update(_ context.Context, i images.Image, _ ...string) (images.Image, error) {
	return f.write(i)
}

func (f *fakeRecords) write(i images.Image) (images.Image, error) {
	if i.Name == f.broken {
		return i, errBroken
	}
	f.wrote = append(f.wrote, i.Name)
	f.records[i.Name] = i
	return i, nil
}

func (f *fakeRecords) Delete(_ context.Context, name string, _ ...images.DeleteOpt) error {
	if name == f.broken {
		return errBroken
	}
	delete(f.records, name)
	return nil
}

func sessionOn(t *testing.T, f *fakeRecords) *session {
	t.Helper()
	client, err := containerd.New("", containerd.WithServices(containerd.WithImageStore(f)))
	require.NoError(t, err)
	store, err := New(Options{Socket: "/run/containerd/containerd.sock", Source: from{}})
	require.NoError(t, err)
	return &session{Store: store, client: client, link: newLink()}
}

func TestRecordsAreRestored(t *testing.T) {
	t.Parallel()
	old, next := record("suse.com/a:1", someDigest), record("suse.com/a:1", digest.FromString("next"))
	old.Labels = map[string]string{"somebody": "else"}
	f := &fakeRecords{records: map[string]images.Image{old.Name: old}}
	c := sessionOn(t, f)
	before := maps.Clone(f.records)
	ctx := t.Context()
	j := newJob(release.Release{Repository: "suse.com/a", Tag: "1-rev1", Long: "1", Digest: someDigest}, node.StageOptions{})
	require.NoError(t, c.saveRecords(ctx, j))

	require.NoError(t, c.writeRecord(ctx, next))
	require.NoError(t, c.writeRecord(ctx, pinRecord("suse.com/a", record("", someDigest))))
	require.NoError(t, c.saveRecords(ctx, j), "a second attempt")
	require.NotEqual(t, before, f.records)
	c.restoreRecords(ctx, j)
	assert.Equal(t, before, f.records)

	f.wrote = nil
	c.restoreRecords(ctx, j)
	assert.Empty(t, f.wrote, "what is as it was is not written")
	delete(f.records, old.Name)
	c.restoreRecords(ctx, j)
	assert.Equal(t, before, f.records, "a record that others removed is restored, too")
}

func TestPinsAddBeforeTheyDrop(t *testing.T) {
	t.Parallel()
	pin := pinRecord("suse.com/a", record("", someDigest))
	moved := pinRecord("suse.com/b", pin)
	f := &fakeRecords{records: map[string]images.Image{pin.Name: pin}, broken: moved.Name}
	c := sessionOn(t, f)
	err := c.pins(t.Context(), []release.Pin{{Repository: "suse.com/b", Digest: someDigest}})
	require.ErrorIs(t, err, errBroken)
	assert.ErrorContains(t, err, moved.Name)
	assert.Contains(t, f.records, pin.Name, "the digest was left without a pin")
}

func TestPinsDropErrors(t *testing.T) {
	t.Parallel()
	pin := pinRecord("suse.com/a", record("", someDigest))
	f := &fakeRecords{records: map[string]images.Image{pin.Name: pin}, broken: pin.Name}
	require.ErrorIs(t, sessionOn(t, f).pins(t.Context(), nil), errBroken)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Socket: "run/containerd.sock", Source: from{}})
	assert.EqualError(t, err, `containerd "run/containerd.sock": not an absolute path`)
	_, err = New(Options{Socket: "/run/containerd.sock"})
	assert.EqualError(t, err, "containerd: no source")
}

func TestNoSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "none.sock")
	store, err := New(Options{Socket: socket, Source: from{}})
	require.NoError(t, err)
	_, err = store.Held(t.Context())
	assert.EqualError(t, err, "containerd "+socket+": connect: no such file or directory")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every call closes its connection, even after an error; TestMain detects one that is left.
func TestNotContainerd(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "other.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer()
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	store, err := New(Options{Socket: socket, Source: from{}})
	require.NoError(t, err)
	place := "containerd " + socket + ": "
	_, err = store.Held(t.Context())
	assert.ErrorContains(t, err, place+"list images: unknown service")
	assert.ErrorContains(t, store.Pins(t.Context(), nil), place+"list images: unknown service")
	rel := release.Release{Repository: "suse.com/a", Long: "1-rev1-build1", Digest: someDigest}
	assert.ErrorContains(t, store.Name(t.Context(), release.Pin{Repository: "suse.com/a", Digest: someDigest}),
		place+digestName(rel)+": list images: unknown service")
	assert.ErrorContains(t, store.Stage(t.Context(), rel, node.StageOptions{}), place+digestName(rel)+": leases: unknown service")
}

// badReleases never reach containerd, because their parts would become names.
var badReleases = map[string]release.Release{
	"no digest":        {Repository: "suse.com/a"},
	"half a digest":    {Repository: "suse.com/a", Digest: "sha256:12"},
	"not normalised":   {Repository: "sles12/velum", Digest: someDigest},
	"no repository":    {Digest: someDigest},
	"with a tag":       {Repository: "suse.com/a:1", Digest: someDigest},
	"tag with a slash": {Repository: "suse.com/a", Digest: someDigest, Long: "1/../../b"},
	"tag with digest":  {Repository: "suse.com/a", Digest: someDigest, Long: "1@" + someDigest.String()},
	"tag too long":     {Repository: "suse.com/a", Digest: someDigest, Long: someDigest.Encoded() + someDigest.Encoded() + "1"},
}

func TestStageRefuses(t *testing.T) {
	t.Parallel()
	store := sessionOn(t, &fakeRecords{})
	for name, release := range badReleases {
		assert.ErrorContains(t, store.Stage(t.Context(), release, node.StageOptions{}), "stage: ", name)
	}
}

func TestStagedName(t *testing.T) {
	t.Parallel()
	release := release.Release{Repository: "suse.com/a", Tag: "1-rev1", Long: "1-rev1-build1", Digest: someDigest}
	assert.Equal(t, "suse.com/a:1-rev1-build1", release.StagedName())
	release.Tag = release.Long
	assert.Equal(t, "suse.com/a@"+someDigest.String(), release.StagedName())
	release.Long = ""
	assert.Equal(t, "suse.com/a@"+someDigest.String(), release.StagedName())
}
