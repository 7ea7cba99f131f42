// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/registry"
	"github.com/kubic-project/image-update-agent/internal/registry/signature"
	"github.com/kubic-project/image-update-agent/manifests"
)

// ferry copies images from upstream to a mirror.
type ferry struct {
	upstream, mirror *node.Registry
	prefix           string // prefix of repositories in the mirror
}

// copy runs `skopeo copy` for a tag or digest: for a whole index with --all, else for this machine's platform.
func (f ferry) copy(t *testing.T, repository, from, to string, flags ...string) {
	t.Helper()
	args := append([]string{
		"--insecure-policy", "copy", "--quiet", "--src-tls-verify=false", "--dest-tls-verify=false", "--preserve-digests",
	}, flags...)
	source, sep := "docker://"+f.upstream.Ref(repository), ":"
	if strings.HasPrefix(from, "sha256:") {
		sep = "@"
	}
	args = append(args, source+sep+from, "docker://"+f.mirror.Ref(f.prefix+repository)+":"+to)
	out, err := exec.CommandContext(t.Context(), "skopeo", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// signature copies the signatures of a digest: the .sig tag with skopeo, and the list of bundles with
// go-containerregistry, as crane does, since skopeo 1.9 drops some of its keys.
func (f ferry) signature(t *testing.T, repository, digest, suffix string) {
	t.Helper()
	tag := tagOf(digest) + suffix
	if suffix != "" {
		f.copy(t, repository, tag, tag)
		return
	}
	with := remote.WithContext(t.Context())
	from, err := name.NewTag(f.upstream.Ref(repository)+":"+tag, name.Insecure)
	require.NoError(t, err)
	to, err := name.NewTag(f.mirror.Ref(f.prefix+repository)+":"+tag, name.Insecure)
	require.NoError(t, err)
	list, err := remote.Index(from, with)
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(to, list, with))
}

// tagOf returns the tag under which cosign stores data for a digest.
func tagOf(digest string) string { return strings.Replace(digest, ":", "-", 1) }

// platformOf returns the digest in an index for this machine's platform.
func platformOf(t *testing.T, r *node.Registry, repository, index string) string {
	t.Helper()
	ref, err := name.NewDigest(r.Ref(repository)+"@"+index, name.Insecure)
	require.NoError(t, err)
	found, err := remote.Index(ref, remote.WithContext(t.Context()))
	require.NoError(t, err)
	manifest, err := found.IndexManifest()
	require.NoError(t, err)
	for _, m := range manifest.Manifests {
		if m.Platform.Architecture == runtime.GOARCH {
			return m.Digest.String()
		}
	}
	require.FailNow(t, "not in the index", "%s of %s", runtime.GOARCH, index)
	return ""
}

// waysToMirror are the ways to configure a mirror on a node, with the prefix of upstream's repositories in it.
var waysToMirror = map[string]struct {
	prefix string
	set    func(n *node.Node, mirror *node.Registry) (config string)
}{
	"hosts.toml": {"", func(n *node.Node, mirror *node.Registry) string {
		n.WriteHosts(story.DocHost, mirror)
		return ""
	}},
	"rewrites": {"suse/", func(_ *node.Node, mirror *node.Registry) string {
		return "rewrites: [{from: " + story.DocHost + ", to: " + mirror.Ref("suse") + "}]\n"
	}},
}

// TestSignaturesInAMirror checks that signatures which the publisher made for its own registry count in a mirror,
// whichever way the node is configured: the index by its digest, and a single copied platform by its own digest. A
// release waits while its signature is missing; one with a signature for another repository is refused, and the record
// keeps that.
func TestSignaturesInAMirror(t *testing.T) {
	t.Parallel()
	for way, how := range waysToMirror {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			const repository = "caasp/v4/velum"
			n := node.Start(t, node.Options{Containerd: node.Containerd2})
			by, mirror := signer(t), n.StartRegistry(false)
			carry := ferry{n.Registry, mirror, how.prefix}
			n.WriteFile(keysDir+"suse.pem", by.public(t))
			n.WriteFile(story.ConfigFile, "repositories: [{match: \"*\", signatures: require}]\n"+how.set(n, mirror))
			story.Template(n, 1, story.DocHost+"/"+repository+":__TAG__")
			n.WriteFile(story.GrainFile, "roles: [admin]\n")
			// publish signs the index and the image for this machine, as OBS does.
			publish := func(rev int, identity string) (index, platform string) {
				index = n.Registry.Publish(repository, fmt.Sprintf("4.0.0-rev%d-build1.1", rev), node.Image{
					Platforms: []string{"linux/" + runtime.GOARCH, "linux/s390x"},
				})
				platform = platformOf(t, n.Registry, repository, index)
				for _, d := range []string{index, platform} {
					by.signAs(t, n, identity, repository, d)
				}
				return index, platform
			}
			refusals := func(s status.Status) string {
				i := story.ImageOf(t, s, "velum.yaml")
				assert.Nil(t, i.Offered)
				return fmt.Sprint(i.Refused)
			}

			one, _ := publish(1, story.DocHost+"/"+repository)
			carry.copy(t, repository, one, "4.0.0-rev1", "--all")
			carry.signature(t, repository, one, ".sig")
			s := story.Cycle(t, n, 0)
			story.IsCurrent(t, s)
			assert.NotEmpty(t, story.ImageOf(t, s, "velum.yaml").SignedBy)

			two, _ := publish(2, story.DocHost+"/"+repository)
			carry.copy(t, repository, two, "4.0.0-rev2", "--all")
			assert.Contains(t, refusals(story.Cycle(t, n, 4)), "not signed")
			carry.signature(t, repository, two, ".sig")
			s = story.Cycle(t, n, 0)
			require.NotNil(t, story.ImageOf(t, s, "velum.yaml").Offered, s.Reason)
			assert.Equal(t, two, story.ImageOf(t, s, "velum.yaml").Offered.Digest.String(), "the index")

			index, three := publish(3, story.DocHost+"/"+repository)
			carry.copy(t, repository, index, "4.0.0-rev3")
			carry.signature(t, repository, three, ".sig")
			s = story.Cycle(t, n, 0)
			i := story.ImageOf(t, s, "velum.yaml")
			require.NotNil(t, i.Offered, s.Reason)
			assert.Equal(t, three, i.Offered.Digest.String(), "the platform's own")
			assert.NotEmpty(t, i.SignedBy)

			four, _ := publish(4, story.DocHost+"/caasp/v4/etcd")
			carry.copy(t, repository, four, "4.0.0-rev4", "--all")
			carry.signature(t, repository, four, ".sig")
			assert.Contains(t, refusals(story.Cycle(t, n, 4)), `identity "`+story.DocHost+`/caasp/v4/etcd"`)
			mirror.Forget()
			i = story.ImageOf(t, story.Cycle(t, n, 4), "velum.yaml")
			assert.Contains(t, fmt.Sprint(i.Refused), "no valid signature")
			if assert.NotNil(t, i.Offered, "the newest that is signed") {
				assert.Equal(t, three, i.Offered.Digest.String())
			}
			assert.True(t, slices.ContainsFunc(mirror.Requests(), func(r node.Request) bool {
				return strings.Contains(r.Reference, ".sig")
			}), "it is looked for again")
		})
	}
}

// published is a repository as the real cosign and openssl wrote it: a fixture of internal/registry/signature.
type published struct {
	Repository string                   `json:"repository"`
	Index      digest.Digest            `json:"index"`
	Platform   digest.Digest            `json:"platform"`
	Tags       map[string]digest.Digest `json:"tags"`
	Manifests  map[digest.Digest]struct {
		MediaType string `json:"mediaType"`
		Body      string `json:"body"`
	} `json:"manifests"`
	Blobs map[digest.Digest]string `json:"blobs"`
}

const fixtures = "../../internal/registry/signature/testdata/"

// push pushes a fixture to a registry, children before their index.
func (p published) push(t *testing.T, r *node.Registry) (repository string) {
	t.Helper()
	_, repository, _ = strings.Cut(p.Repository, "/")
	repo, err := name.NewRepository(r.Ref(repository), name.Insecure)
	require.NoError(t, err)
	with := remote.WithContext(t.Context())
	for _, blob := range p.Blobs {
		require.NoError(t, remote.WriteLayer(repo, static.NewLayer([]byte(blob), types.OCIConfigJSON), with))
	}
	put := func(ref name.Reference, d digest.Digest) {
		m := p.Manifests[d]
		require.NoError(t, remote.Put(ref, manifest{m.MediaType, m.Body}, with), d)
	}
	for _, indexes := range []bool{false, true} {
		for d, m := range p.Manifests {
			if types.MediaType(m.MediaType).IsIndex() == indexes {
				put(repo.Digest(d.String()), d)
			}
		}
	}
	for tag, d := range p.Tags {
		put(repo.Tag(tag), d)
	}
	return repository
}

// manifest implements remote.Taggable.
type manifest struct{ mediaType, body string }

func (m manifest) RawManifest() ([]byte, error)        { return []byte(m.body), nil }
func (m manifest) MediaType() (types.MediaType, error) { return types.MediaType(m.mediaType), nil }

// carried are fixtures, and the mirrors to which the test copies them.
var carried = []struct {
	fixture, key, format, suffix string
	platform                     bool // copy only this platform
}{
	{"suse-rsa4096", "rsa4096", signature.SimpleSigning, ".sig", false},
	{"cosign2-ed25519", "ed25519", signature.SimpleSigning, ".sig", false},
	{"cosign3-simple-p384", "p384", signature.SimpleSigning, ".sig", false},
	{"fallback", "p256", signature.Bundle, "", false},
	{"platform", "p256", signature.SimpleSigning, ".sig", false},
	{"platform", "p256", signature.SimpleSigning, ".sig", true},
}

// TestRealSignaturesSurviveACopy checks that signatures by cosign and OBS stay valid after a copy to another registry.
// None of these registries supports the referrers API, not even distribution 3, so bundles are under a fallback tag.
func TestRealSignaturesSurviveACopy(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{})
	reg := registry.New(registry.Options{CertsDirs: []string{n.Path("etc/containerd/certs.d")}})
	t.Cleanup(reg.Close)
	for _, program := range []node.RegistryProgram{node.DockerRegistry, node.Distribution3} {
		mirror := n.StartRegistryWith(node.RegistryOptions{Program: program})
		carry := ferry{n.Registry, mirror, "suse/"}
		for _, c := range carried {
			t.Run(fmt.Sprint(program, " ", c.fixture, " ", c.platform), func(t *testing.T) {
				var p published
				data, err := os.ReadFile(fixtures + c.fixture + ".json")
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(data, &p))
				repository, d, signed := p.push(t, n.Registry), p.Index, p.Index
				if c.fixture == "platform" {
					signed = p.Platform
				}
				if c.platform {
					d = p.Platform
				}
				there := mirror.Ref("suse/" + repository)
				verify := func(rewrites ...manifests.Rewrite) (signature.Verdict, error) {
					v := signature.New(signature.Options{Dirs: []string{keyOf(t, c.key)}, Rewrites: rewrites})
					return v.Verify(t.Context(), reg, there, d, p.Platform)
				}
				known := manifests.Rewrite{From: story.DocHost, To: mirror.Ref("suse")}

				carry.copy(t, repository, d.String(), "copied", "--all")
				if !c.platform { // else its signature has been copied before
					_, err = verify(known)
					require.ErrorIs(t, err, signature.ErrUnsigned)
				}
				carry.signature(t, repository, signed.String(), c.suffix)
				got, err := verify(known)
				require.NoError(t, err)
				assert.Equal(t, c.format, got.Format)
				assert.Equal(t, signed, got.Signed)

				_, err = verify()
				if c.format == signature.Bundle { // it contains no repository
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, signature.ErrWrong)
				require.ErrorContains(t, err, `identity "`+story.DocHost+"/"+repository+`": not `+there)
			})
		}
	}
}

// keyOf returns a directory with one key of the fixtures.
func keyOf(t *testing.T, kind string) string {
	t.Helper()
	data, err := os.ReadFile(fixtures + kind + ".pem")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, kind+".pem"), data, 0o600))
	return dir
}
