// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
)

var someDigest = digest.FromString("some image")

// pinNames are repositories and the paths of their pins.
var pinNames = map[string]string{
	// Short enough for a repository, too long after the host of pins.
	"suse.com/" + strings.Repeat("l/", 115) + "x":       "hashed/" + digest.FromString("suse.com/"+strings.Repeat("l/", 115)+"x").Encoded(),
	"registry.suse.com/caasp/v4/velum":                  "registry.suse.com/caasp/v4/velum",
	"docker.io/library/nginx":                           "docker.io/library/nginx",
	"registry01:5000/registry.suse.com/caasp/v4.5/etcd": "registry01_5000/registry.suse.com/caasp/v4.5/etcd",
	"127.0.0.1:5000/a":                                  "127.0.0.1_5000/a",
	"localhost/a":                                       "localhost/a",
	"Registry.Example/a":                                "hashed/" + digest.FromString("Registry.Example/a").Encoded(),
	"[fd00::1]:5000/a":                                  "hashed/" + digest.FromString("[fd00::1]:5000/a").Encoded(),
	"a.b_5000/a":                                        "hashed/" + digest.FromString("a.b_5000/a").Encoded(),
	"suse.com/" + strings.Repeat("long/", 43):           "hashed/" + digest.FromString("suse.com/"+strings.Repeat("long/", 43)).Encoded(),
	"suse.com/" + strings.Repeat("l/", 100) + "x":       "suse.com/" + strings.Repeat("l/", 100) + "x",
}

func TestPinName(t *testing.T) {
	t.Parallel()
	for repository, path := range pinNames {
		assert.Equal(t, pinHost+"/"+path+":sha256-"+someDigest.Encoded(), pinName(repository, someDigest))
	}
}

func TestPinNameOfLongDigest(t *testing.T) {
	t.Parallel()
	name := pinName("suse.com/a", digest.SHA512.FromString("some image"))
	assert.Len(t, name[strings.LastIndex(name, ":")+1:], len("sha512-")+64)
	assertReference(t, name)
}

// assertReference parses a record's name as CRI does.
func assertReference(t assert.TestingT, name string) {
	named, err := reference.ParseNormalizedNamed(name)
	if !assert.NoError(t, err, name) {
		return
	}
	assert.Equal(t, name, named.String())
	assert.Equal(t, pinHost, reference.Domain(named))
	_, tagged := named.(reference.Tagged)
	assert.True(t, tagged, name)
	assert.LessOrEqual(t, len(named.Name()), reference.RepositoryNameTotalLengthMax)
}

// repositories draws normalised names, often odd ones.
func repositories() *rapid.Generator[string] {
	host := rapid.SampledFrom([]string{
		"registry.suse.com", "docker.io", "r:5000", "r:50", "a.b_50", "a.b:50", "localhost", "localhost:1", "[::1]:5000", "[::1]", "UP.per", "10.0.0.1:5000", "r-1:5", "r:1",
	})
	valid := func(repository string) bool {
		name, err := release.NormalizeRepository(repository)
		return err == nil && name == repository
	}
	return rapid.Custom(func(t *rapid.T) string {
		path := rapid.StringMatching(`[a-z0-9]{1,3}(([._]|__|-{1,2})[a-z0-9]{1,3})?(/[a-z0-9]{1,90}){0,3}`).Draw(t, "path")
		return host.Draw(t, "host") + "/" + path
	}).Filter(valid)
}

func TestPinNameProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := repositories().Draw(t, "a"), repositories().Draw(t, "b")
		assertReference(t, pinName(a, someDigest))
		assert.Equal(t, a == b, pinName(a, someDigest) == pinName(b, someDigest), "%s, %s", a, b)
		pin, ours := pinOf(pinRecord(a, record("any", someDigest)))
		assert.True(t, ours)
		assert.Equal(t, release.Pin{Repository: a, Digest: someDigest}, pin)
	})
}

func FuzzPinName(f *testing.F) {
	for repository := range pinNames {
		f.Add(repository)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if repository, err := release.NormalizeRepository(text); err == nil {
			assertReference(t, pinName(repository, someDigest))
		}
	})
}

func record(name string, d digest.Digest) images.Image {
	return images.Image{Name: name, Target: ocispec.Descriptor{Digest: d, MediaType: ocispec.MediaTypeImageManifest, Size: 1}}
}

func TestPinOfForeignRecords(t *testing.T) {
	t.Parallel()
	ours := pinRecord("suse.com/a", record("suse.com/a:1", someDigest))
	_, ok := pinOf(ours)
	require.True(t, ok)
	for why, change := range map[string]func(*images.Image){
		"without our label":   func(i *images.Image) { i.Labels = map[string]string{labelPinned: pinned} },
		"another name":        func(i *images.Image) { i.Name = "suse.com/a:1" },
		"another target":      func(i *images.Image) { i.Target.Digest = digest.FromString("another") },
		"another repository":  func(i *images.Image) { i.Labels = map[string]string{labelRepository: "suse.com/b"} },
		"a digest that is no": func(i *images.Image) { i.Target.Digest = "sha256:" },
		"no digest":           func(i *images.Image) { i.Target.Digest = "" },
	} {
		foreign := ours
		change(&foreign)
		_, ok := pinOf(foreign)
		assert.False(t, ok, why)
	}
}

// stagedNames are records with the agent's label, and whether staging gives that name.
var stagedNames = map[string]struct {
	name, label string
	ours        bool
}{
	"by its long tag":          {"suse.com/a:1-rev1-build1", "suse.com/a", true},
	"by its digest":            {"suse.com/a@" + someDigest.String(), "suse.com/a", true},
	"behind a port":            {"suse.com:5000/a:1", "suse.com:5000/a", true},
	"another repository":       {"suse.com/b:1", "suse.com/a", false},
	"a repository below":       {"suse.com/a/b:1", "suse.com/a", false},
	"a repository beside":      {"suse.com/ab:1", "suse.com/a", false},
	"another digest":           {"suse.com/a@" + digest.FromString("other").String(), "suse.com/a", false},
	"tag and digest":           {"suse.com/a:1@" + someDigest.String(), "suse.com/a", false},
	"no tag":                   {"suse.com/a:", "suse.com/a", false},
	"only the repository":      {"suse.com/a", "suse.com/a", false},
	"a tag that is none":       {"suse.com/a:1/b", "suse.com/a", false},
	"a host for a repository":  {"suse.com:5000/a:1", "suse.com", false},
	"not normalised":           {"velum:1", "velum", false},
	"an empty label":           {":1", "", false},
	"no label's name":          {"@" + someDigest.String(), "", false},
	"the image id":             {someDigest.String(), "sha256", false},
	"a pin with another label": {pinName("suse.com/a", someDigest), "suse.com/a", false},
}

func TestStagedOf(t *testing.T) {
	t.Parallel()
	for name, is := range stagedNames {
		r := record(is.name, someDigest)
		_, ours := stagedOf(r)
		assert.False(t, ours, "%s, without a label", name)
		r.Labels = map[string]string{labelStaged: is.label}
		repository, ours := stagedOf(r)
		assert.Equal(t, is.ours, ours, name)
		assert.Equal(t, map[bool]string{true: is.label}[is.ours], repository, name)
		r.Target.Digest = "sha256:12"
		_, ours = stagedOf(r)
		assert.False(t, ours, "%s, of half a digest", name)
	}
}

// A name given by staging is recognised as such.
func TestStagedOfProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		release := rapid.Custom(func(t *rapid.T) release.Release {
			return release.Release{
				Repository: repositories().Draw(t, "repository"), Digest: someDigest,
				Long: rapid.StringMatching(`([a-zA-Z0-9_][a-zA-Z0-9._-]{0,20})?`).Draw(t, "long"),
			}
		}).Filter(func(r release.Release) bool { return checkRelease(r) == nil }).Draw(t, "release")
		r := record(release.StagedName(), someDigest)
		r.Labels = map[string]string{labelStaged: release.Repository}
		repository, ours := stagedOf(r)
		assert.True(t, ours)
		assert.Equal(t, release.Repository, repository)
		r.Labels[labelStaged] = repositories().Filter(func(s string) bool { return s != repository }).Draw(t, "other")
		_, ours = stagedOf(r)
		assert.False(t, ours)
	})
}

func TestPlanPins(t *testing.T) {
	t.Parallel()
	other := digest.FromString("other image")
	tag, pin := record("suse.com/a:1", someDigest), pinRecord("suse.com/a", record("", someDigest))
	unpinned, unmanaged := pin, pin
	unpinned.Labels = map[string]string{labelRepository: "suse.com/a", labelManaged: managed}
	unmanaged.Labels = map[string]string{labelRepository: "suse.com/a", labelPinned: pinned}
	want := release.Pin{Repository: "suse.com/a", Digest: someDigest}
	for _, plan := range []struct {
		name      string
		records   []images.Image
		want      []release.Pin
		add, drop []images.Image
	}{
		{name: "nothing"},
		{name: "held, not wanted", records: []images.Image{tag}},
		{name: "held, wanted", records: []images.Image{tag}, want: []release.Pin{want}, add: []images.Image{pin}},
		{name: "wanted twice", records: []images.Image{tag}, want: []release.Pin{want, want}, add: []images.Image{pin}},
		{name: "not held", records: []images.Image{tag}, want: []release.Pin{{Repository: "suse.com/a", Digest: other}}},
		{name: "there already", records: []images.Image{tag, pin}, want: []release.Pin{want}},
		{name: "only the pin is left", records: []images.Image{pin}, want: []release.Pin{want}},
		{name: "not wanted any more", records: []images.Image{tag, pin}, drop: []images.Image{pin}},
		{name: "pinned no more", records: []images.Image{unpinned}, want: []release.Pin{want}, add: []images.Image{pin}},
		{name: "managed no more", records: []images.Image{unmanaged}, want: []release.Pin{want}, add: []images.Image{pin}},
		{
			name: "same digest for another repository", records: []images.Image{pin},
			want: []release.Pin{{Repository: "suse.com/b", Digest: someDigest}},
			add:  []images.Image{pinRecord("suse.com/b", pin)}, drop: []images.Image{pin},
		},
	} {
		add, drop := planPins(plan.records, plan.want)
		assert.Equal(t, plan.add, add, plan.name)
		assert.Equal(t, plan.drop, drop, plan.name)
	}
}

// calls counts the calls to containerd, by name. Calls that are not counted here panic on a nil interface.
type calls map[string]int

type countedRecords struct {
	images.Store
	list func() []images.Image
	calls
}

func (c countedRecords) List(context.Context, ...string) ([]images.Image, error) {
	c.calls["list images"]++
	return c.list(), nil
}

type countedContent struct {
	content.Store
	from content.Store
	calls
}

func (c countedContent) Walk(ctx context.Context, f content.WalkFunc, filters ...string) error {
	c.calls["list content"]++
	return c.from.Walk(ctx, f, filters...)
}

func (c countedContent) ReaderAt(ctx context.Context, d ocispec.Descriptor) (content.ReaderAt, error) {
	c.calls["read"]++
	return c.from.ReaderAt(ctx, d)
}

type countedSnapshots struct {
	snapshots.Snapshotter
	from snapshots.Snapshotter
	calls
}

func (c countedSnapshots) Walk(ctx context.Context, f snapshots.WalkFunc, filters ...string) error {
	c.calls["list snapshots"]++
	return c.from.Walk(ctx, f, filters...)
}

// For any number of records, an observation costs three listings, and reads each image once.
func TestHeldCallsOfThousands(t *testing.T) {
	t.Parallel()
	const many = 1200
	c, store, _ := inMemory(t, &fakeRecords{}, unpackedAll{})
	target := labelledImage(t, store, c.platform, map[string]string{"org.opensuse.reference": "suse.com/caasp/a:1"})
	records := make([]images.Image, 0, many)
	for n := range many {
		r := images.Image{Name: fmt.Sprintf("suse.com/a%d:1", n), Target: target}
		switch n % 3 {
		case 0:
			r = pinRecord(fmt.Sprintf("suse.com/a%d", n), r)
		case 1:
			r.Labels = map[string]string{labelStaged: fmt.Sprintf("suse.com/a%d", n)}
		}
		records = append(records, r)
	}
	made := calls{}
	counted, err := containerd.New("", containerd.WithServices(
		containerd.WithImageStore(countedRecords{list: func() []images.Image { return records }, calls: made}),
		containerd.WithContentStore(countedContent{from: store, calls: made}),
		containerd.WithSnapshotters(map[string]snapshots.Snapshotter{
			"fake": countedSnapshots{from: unpackedAll{}, calls: made},
		})))
	require.NoError(t, err)
	c.client = counted
	for round := range 3 {
		clear(made)
		held, err := c.held(t.Context())
		require.NoError(t, err)
		require.Len(t, held, many)
		assert.Equal(t, "caasp/a", held[many-1].Origin, "the image tells it, and needs no registry")
		assert.Equal(t, [3]bool{true, false, false}, [3]bool{held[0].Pin, held[1].Pin, held[2].Pin})
		assert.Equal(t, [3]bool{false, true, false}, [3]bool{held[0].Staged, held[1].Staged, held[2].Staged})
		reads := made["read"]
		delete(made, "read")
		assert.Equal(t, calls{"list images": 1, "list content": 1, "list snapshots": 1}, made)
		assert.Equal(t, round > 0, reads == 0, "round %d: %d reads", round, reads)
		assert.Less(t, reads, 10)
	}
}

func TestHeldReportsStagedRecords(t *testing.T) {
	t.Parallel()
	long, pulled := record("suse.com/a:1-rev1-build1", someDigest), record("suse.com/a:1-rev1", someDigest)
	long.Labels = map[string]string{labelStaged: "suse.com/a", labelManaged: managed}
	copied := record("suse.com/a:mine/too", someDigest)
	copied.Labels = long.Labels
	records := &fakeRecords{records: map[string]images.Image{}}
	for _, r := range []images.Image{long, pulled, copied} {
		records.records[r.Name] = r
	}
	c, store, _ := inMemory(t, records, unpackedAll{})
	write(t, store, "text/plain", []byte("not of these")) // the images' content is lost
	held, err := c.held(t.Context())
	require.NoError(t, err)
	assert.ElementsMatch(t, []node.HeldImage{
		{Name: long.Name, Digest: someDigest, Staged: true, Repository: "suse.com/a"},
		{Name: pulled.Name, Digest: someDigest},
		{Name: copied.Name, Digest: someDigest},
	}, held)

	// A CRI pull of the same name wipes the labels.
	long.Labels = map[string]string{labelManaged: managed}
	long.Target.Digest = digest.FromString("pulled")
	records.records = map[string]images.Image{long.Name: long}
	held, err = c.held(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []node.HeldImage{{Name: long.Name, Digest: long.Target.Digest}}, held)
}

// deletions is an image store that records deletions.
type deletions struct {
	*fakeRecords
	asked  []images.DeleteOptions
	unread error
	before func(name string) // changes by others between check and deletion
}

func (d *deletions) Get(ctx context.Context, name string) (images.Image, error) {
	if d.unread != nil {
		return images.Image{}, d.unread
	}
	return d.fakeRecords.Get(ctx, name)
}

func (d *deletions) Delete(ctx context.Context, name string, opts ...images.DeleteOpt) error {
	var o images.DeleteOptions
	for _, opt := range opts {
		if err := opt(ctx, &o); err != nil {
			return err
		}
	}
	if d.before != nil {
		d.before(name)
	}
	d.asked = append(d.asked, o)
	record, ok := d.records[name]
	if !ok || o.Target != nil && o.Target.Digest != record.Target.Digest {
		return errdefs.ErrNotFound
	}
	return d.fakeRecords.Delete(ctx, name)
}

func pruning(t *testing.T, records ...images.Image) (*session, *deletions) {
	t.Helper()
	d := &deletions{fakeRecords: &fakeRecords{records: map[string]images.Image{}}}
	for _, r := range records {
		d.records[r.Name] = r
	}
	c := sessionOn(t, d.fakeRecords)
	var err error
	c.client, err = containerd.New("", containerd.WithServices(containerd.WithImageStore(d)))
	require.NoError(t, err)
	return c, d
}

func (d *deletions) left() []string { return slices.Sorted(maps.Keys(d.records)) }

func seen(records ...images.Image) (all []node.HeldImage) {
	for _, r := range records {
		all = append(all, node.HeldImage{Name: r.Name, Digest: r.Target.Digest})
	}
	return all
}

func TestPruneRemovesWhatWasSeen(t *testing.T) {
	t.Parallel()
	other := digest.FromString("other image")
	a, b, c := record("suse.com/a:1", someDigest), record("suse.com/b:1", someDigest), record("suse.com/c:1", someDigest)
	moved, gone := record("suse.com/moved:1", other), record("suse.com/gone:1", someDigest)
	wasMoved := record("suse.com/moved:1", someDigest)
	s, d := pruning(t, a, b, c, moved)
	require.NoError(t, s.prune(t.Context(), seen(a, wasMoved, b, gone, wasMoved)))
	assert.Equal(t, []string{c.Name, moved.Name}, d.left())
	require.Len(t, d.asked, 2, "nothing else was asked for")
	for n, o := range d.asked {
		assert.Equal(t, someDigest, o.Target.Digest)
		assert.Equal(t, n == len(d.asked)-1, o.Synchronous, "garbage is collected once, at the end")
	}
	require.NoError(t, s.prune(t.Context(), nil))
	assert.Len(t, d.asked, 2)
}

// A pull may come between check and deletion: servers that support conditions detect it.
func TestPruneKeepsNewlyPulledTags(t *testing.T) {
	t.Parallel()
	a, b := record("suse.com/a:1", someDigest), record("suse.com/b:1", someDigest)
	s, d := pruning(t, a, b)
	d.before = func(string) { d.records[a.Name] = record(a.Name, digest.FromString("pulled")) }
	require.NoError(t, s.prune(t.Context(), seen(a, b)))
	assert.Equal(t, []string{a.Name}, d.left())

	s, d = pruning(t, a, b)
	d.before = func(name string) { delete(d.records, name) }
	require.NoError(t, s.prune(t.Context(), seen(a, b)), "removed by others already")
}

func TestPruneErrors(t *testing.T) {
	t.Parallel()
	a, b := record("suse.com/a:1", someDigest), record("suse.com/b:1", someDigest)
	s, d := pruning(t, a, b)
	d.broken = a.Name
	err := s.prune(t.Context(), seen(a, b))
	require.ErrorIs(t, err, errBroken)
	assert.EqualError(t, err, "image suse.com/a:1: broken")
	assert.Equal(t, []string{a.Name, b.Name}, d.left())

	s, d = pruning(t, a)
	d.unread = errBroken
	err = s.prune(t.Context(), seen(a))
	require.ErrorIs(t, err, errBroken)
	assert.EqualError(t, err, "image suse.com/a:1: broken")
	assert.Equal(t, []string{a.Name}, d.left())
}
