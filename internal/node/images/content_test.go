// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"errors"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// listed is a content store whose metadata may have outlived its files.
type listed struct {
	content.Store
	infos map[digest.Digest]content.Info
	files map[digest.Digest][]byte
	fails map[digest.Digest]error
}

func (l *listed) Info(_ context.Context, d digest.Digest) (content.Info, error) {
	if i, is := l.infos[d]; is {
		return i, nil
	}
	return content.Info{}, errdefs.ErrNotFound
}

func (l *listed) Delete(_ context.Context, d digest.Digest) error {
	delete(l.infos, d)
	return nil
}

// ReaderAt opens a blob with the size of the metadata, as containerd's client does.
func (l *listed) ReaderAt(_ context.Context, d ocispec.Descriptor) (content.ReaderAt, error) {
	data, is := l.files[d.Digest]
	switch {
	case l.fails[d.Digest] != nil:
		return nil, l.fails[d.Digest]
	case !is:
		return nil, errdefs.ErrNotFound
	}
	return sized{openDocument{bytes.NewReader(data)}, l.infos[d.Digest].Size}, nil
}

type sized struct {
	openDocument
	size int64
}

func (s sized) Size() int64 { return s.size }

func (l *listed) add(data string, children ...digest.Digest) digest.Digest {
	d := digest.FromString(data)
	i := content.Info{Digest: d, Size: int64(len(data)), Labels: map[string]string{}}
	for n, child := range children {
		i.Labels[labelContent+"."+string(rune('a'+n))] = child.String()
	}
	l.infos[d], l.files[d] = i, []byte(data)
	return d
}

// A blob is deleted only if it is listed and its file is gone, too short or another one: a pull then fetches it.
func TestUnreadableContentIsDeleted(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]string{"manifest": "manifest", "config": "config", "layer": "layer"} {
		for how, breaks := range map[string]func(l *listed, d digest.Digest){
			"no file":        func(l *listed, d digest.Digest) { delete(l.files, d) },
			"truncated":      func(l *listed, d digest.Digest) { l.files[d] = l.files[d][:2] },
			"empty":          func(l *listed, d digest.Digest) { l.files[d] = nil },
			"zeros":          func(l *listed, d digest.Digest) { l.files[d] = make([]byte, len(l.files[d])) },
			"whole":          nil,
			"cannot be read": func(l *listed, d digest.Digest) { l.fails[d] = errdefs.ErrUnavailable },
			"not listed":     func(l *listed, d digest.Digest) { delete(l.infos, d) },
		} {
			l := &listed{
				infos: map[digest.Digest]content.Info{}, files: map[digest.Digest][]byte{}, fails: map[digest.Digest]error{},
			}
			root := l.add("manifest", l.add("config"), l.add("layer"))
			other := l.add("of another image")
			d := digest.FromString(of)
			isBroken := breaks != nil && how != "cannot be read" && how != "not listed"
			if breaks != nil {
				breaks(l, d)
			}
			c, _, held := inMemory(t, &fakeRecords{}, unpackedAll{})
			client, err := containerd.New("", containerd.WithServices(
				containerd.WithContentStore(l), containerd.WithLeasesService(held)))
			require.NoError(t, err)
			c.client = client
			r := release.Release{Repository: "suse.com/a", Digest: root}
			assert.False(t, c.repair(t.Context(), r, &registryError{errBroken}), "the registry's fault")
			assert.Equal(t, isBroken, c.repair(t.Context(), r, errors.New("cannot unpack")), "%s: %s", name, how)
			_, stays := l.infos[d]
			assert.Equal(t, !isBroken && how != "not listed", stays, "%s: %s", name, how)
			assert.Contains(t, l.infos, other)
			assert.Empty(t, held.live)
		}
	}
}
