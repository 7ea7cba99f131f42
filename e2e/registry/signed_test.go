// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// keysDir contains the public keys of a node.
const keysDir = "usr/share/pki/containers/"

// TestSignaturesRequired checks that, with required signatures, the agent fetches no layer of an image that is not
// signed yet or is signed by another key, and offers correctly signed ones.
func TestSignaturesRequired(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	n.WriteFile(story.ConfigFile, "repositories: [{match: \"*\", signatures: require}]\n")
	next := story.Rel(n, "demo/velum", "4.0.0-rev3-build1.1")

	s := story.Cycle(t, n, 4)
	i := story.ImageOf(t, s, "velum.yaml")
	assert.Contains(t, fmt.Sprint(i.Refused), "no usable public key")
	ours, theirs := signer(t), signer(t)
	n.WriteFile(keysDir+"ours.pem", ours.public(t))

	n.Registry.Forget()
	s = story.Cycle(t, n, 4)
	i = story.ImageOf(t, s, "velum.yaml")
	require.NotEmpty(t, i.Refused, "%+v", i)
	assert.Equal(t, policy.RuleSignature, i.Refused[0].Rule)
	assert.Contains(t, fmt.Sprint(i.Refused), "not signed")
	assert.LessOrEqual(t, n.Registry.Requests().Count("GET", node.Blob), 2, "configs, and no layer")
	images, _ := story.Stored(t, n)
	for _, digest := range images {
		assert.NotEqual(t, next, digest)
	}

	theirs.sign(t, n, "demo/velum", next)
	s = story.Cycle(t, n, 4)
	assert.Contains(t, fmt.Sprint(story.ImageOf(t, s, "velum.yaml").Refused), "no valid signature")

	n.WriteFile(keysDir+"theirs.pem", theirs.public(t))
	s = story.Cycle(t, n, 0)
	i = story.ImageOf(t, s, "velum.yaml")
	require.NotNil(t, i.Offered, "%+v", i)
	assert.Equal(t, next, i.Offered.Digest.String())
	assert.Contains(t, i.SignedBy, "sha256:")
}

// signing is a publisher's key pair.
type signing struct{ *ecdsa.PrivateKey }

func signer(t *testing.T) signing {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return signing{key}
}

func (s signing) public(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(s.Public())
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// sign pushes a signature as cosign and OBS do: under a tag for the digest.
func (s signing) sign(t *testing.T, n *node.Node, repository, digest string) {
	t.Helper()
	s.signAs(t, n, n.Registry.Ref(repository), repository, digest)
}

// signAs signs for an identity, which may differ from the repository's name here.
func (s signing) signAs(t *testing.T, n *node.Node, identity, repository, digest string) {
	t.Helper()
	payload := fmt.Sprintf(`{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},`+
		`"type":"cosign container image signature"},"optional":null}`, identity, digest)
	sum := sha256.Sum256([]byte(payload))
	raw, err := ecdsa.SignASN1(rand.Reader, s.PrivateKey, sum[:])
	require.NoError(t, err)
	n.Registry.PushSignature(repository, digest, []byte(payload), base64.StdEncoding.EncodeToString(raw))
}
