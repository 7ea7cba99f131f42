// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

func rewrites(t require.TestingT, list ...string) []manifests.Rewrite {
	var all []manifests.Rewrite
	for _, each := range list {
		from, to, _ := strings.Cut(each, "=")
		all = append(all, manifests.Rewrite{From: from, To: to})
	}
	require.NoError(t, manifests.CheckRewrites(all))
	return all
}

// An image with a rewritten name accepts signatures of the original name, and of no other.
func TestIdentityBehindARewrite(t *testing.T) {
	t.Parallel()
	suse := []string{"registry.suse.com=mirror:5000/suse"}
	two := []string{"registry.suse.com=mirror:5000/a", "registry.suse.com/caasp=mirror:5000/b"}
	joined := []string{"registry.suse.com=mirror:5000", "registry.opensuse.org=mirror:5000"}
	hub := []string{"docker.io=mirror:5000/hub", "sles12=mirror:5000/old", "nginx=mirror:5000/web"}
	for _, c := range []struct {
		rewrites             []string
		repository, identity string
		good                 bool
	}{
		{suse, "mirror:5000/suse/caasp/velum", "registry.suse.com/caasp/velum", true},
		{suse, "mirror:5000/suse/caasp/velum", "registry.suse.com/caasp/velum:4.0.0", true},
		{suse, "mirror:5000/suse/caasp/velum", "mirror:5000/suse/caasp/velum", true}, // signed again for the mirror
		{suse, "mirror:5000/suse/caasp/velum", "registry.suse.com/caasp/etcd", false},
		{suse, "mirror:5000/suse/caasp/velum", "registry.suse.com/suse/caasp/velum", false},
		{suse, "mirror:5000/suse/caasp/velum", "registry.opensuse.org/caasp/velum", false},
		{suse, "mirror:5000/suse/caasp/velum", "registry.suse.com.evil.org/caasp/velum", false},
		{suse, "mirror:5000/other/caasp/velum", "registry.suse.com/caasp/velum", false}, // no rewrite leads to it
		{suse, "mirror:5000/suse2/caasp/velum", "registry.suse.com/2/caasp/velum", false},
		{suse, "registry.suse.com/caasp/velum", "mirror:5000/suse/caasp/velum", false}, // not in reverse
		{suse, "registry.suse.com/caasp/velum", "registry.suse.com/caasp/velum", true}, // of a pod without a template
		{nil, "mirror:5000/suse/caasp/velum", "registry.suse.com/caasp/velum", false},

		{two, "mirror:5000/b/velum", "registry.suse.com/caasp/velum", true},
		{two, "mirror:5000/a/sles", "registry.suse.com/sles", true},
		{two, "mirror:5000/a/caasp/velum", "registry.suse.com/caasp/velum", false}, // which rendering maps to another name

		{joined, "mirror:5000/velum", "registry.suse.com/velum", true},
		{joined, "mirror:5000/velum", "registry.opensuse.org/velum", true}, // the mirror has merged them
		{joined, "mirror:5000/velum", "registry.suse.de/velum", false},

		{hub, "mirror:5000/hub/library/redis", "docker.io/library/redis", true},
		{hub, "mirror:5000/hub/redis", "index.docker.io/library/redis", true}, // as docker.io/redis
		{hub, "mirror:5000/old/velum", "index.docker.io/sles12/velum", true},
		{hub, "mirror:5000/web", "docker.io/library/nginx", true},
		{hub, "mirror:5000/web/nginx", "docker.io/library/nginx", false},
		{[]string{"index.docker.io=mirror:5000"}, "mirror:5000/sles12/velum", "docker.io/sles12/velum", true},
		{[]string{"library=mirror:5000/l"}, "mirror:5000/l/redis", "docker.io/library/redis", true},
		{[]string{"library=mirror:5000/l"}, "mirror:5000/l/redis", "quay.io/library/redis", false},
		{[]string{"registry.suse.com=mirror"}, "docker.io/mirror/velum", "registry.suse.com/velum", true}, // mirror is not a host

		{[]string{"r.suse.com=r.suse.com/mirror"}, "r.suse.com/mirror/velum", "r.suse.com/velum", true},
		{[]string{"r.suse.com=r.suse.com/mirror"}, "r.suse.com/mirror/velum", "r.suse.com/mirror/velum", true},
		{[]string{"r.suse.com/a=r.suse.com"}, "r.suse.com/velum", "r.suse.com/a/velum", true},
		{[]string{"r.suse.com/a=r.suse.com"}, "r.suse.com/velum", "r.suse.com/b/velum", false},
	} {
		d := digest.FromString("image")
		o := owner{c.repository, rewrites(t, c.rewrites...)}
		assert.Equal(t, c.good, o.checkIdentity(c.identity, d) == nil, "%q: %s for %s", c.rewrites, c.identity, c.repository)
		assert.Error(t, o.checkIdentity(c.identity+"@"+digest.FromString("other").String(), d), "another digest stays another")
	}
}

// For any rewrites, an identity counts only if it is the repository itself or rendering maps it to the repository.
func TestIdentitiesMatchRewrittenRepositories(t *testing.T) {
	t.Parallel()
	part := rapid.SampledFrom([]string{"r.a", "r.b", "m:5000", "a", "b", "ab"})
	name := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(part, 1, 4).Draw(t, "parts"), "/")
	})
	rewrite := rapid.Custom(func(t *rapid.T) manifests.Rewrite {
		return manifests.Rewrite{From: name.Draw(t, "from"), To: name.Draw(t, "to")}
	})
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rewrite, 0, 3).Draw(t, "rewrites")
		if manifests.CheckRewrites(list) != nil {
			list = nil
		}
		host := rapid.SampledFrom([]string{"r.a/", "r.b/", "m:5000/"})
		identity := host.Draw(t, "host") + name.Filter(valid).Draw(t, "name")
		other := host.Draw(t, "other host") + name.Filter(valid).Draw(t, "other name")
		repository, err := release.NormalizeRepository(manifests.Rewritten(identity, list))
		if err != nil {
			return // m:5000 in the middle
		}
		o, d := owner{repository, list}, digest.FromString("image")
		require.NoError(t, o.checkIdentity(identity, d), "%s for %s", identity, repository)
		require.NoError(t, o.checkIdentity(repository, d))
		made, err := release.NormalizeRepository(manifests.Rewritten(other, list))
		allowed := other == repository || err == nil && made == repository
		require.Equal(t, allowed, o.checkIdentity(other, d) == nil, "%s for %s", other, repository)
	})
}

func valid(name string) bool {
	_, err := release.NormalizeRepository("r.a/" + name)
	return err == nil
}

// With a mirror in the name, the upstream repository's signature counts, and changed rewrites cause another
// verification of refused releases.
func TestVerifyBehindARewrite(t *testing.T) {
	t.Parallel()
	s := fixture(t, "cosign2-p256")
	d, upstream := s.Index, s.Repository
	s.Repository = strings.Replace(upstream, "registry.suse.com", "mirror:5000/suse", 1)
	strict := with(t, "p256")
	_, err := s.verify(t, strict)
	require.ErrorIs(t, err, ErrWrong)
	require.ErrorContains(t, err, `identity "`+upstream+`": not `+s.Repository)

	loose := New(Options{Dirs: strict.keys.dirs, Rewrites: rewrites(t, "registry.suse.com=mirror:5000/suse")})
	got, err := s.verify(t, loose)
	require.NoError(t, err)
	assert.Equal(t, d, got.Signed)
	before, err := strict.Keys(t.Context())
	require.NoError(t, err)
	after, err := loose.Keys(t.Context())
	require.NoError(t, err)
	assert.Equal(t, append(before, "registry.suse.com=mirror:5000/suse"), after)

	require.Len(t, strict.keys.dirs, 1)
	write(t, filepath.Join(strict.keys.dirs[0], "p256.pem"), newSigner(t).pem(t))
	_, err = s.verify(t, loose)
	require.ErrorContains(t, err, "made with another key", "a rewrite is no key")
}
