// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/registry/signature"
)

// signedImages is the number of images that the test compares with each cosign.
const signedImages = 1000

// TestSignersAreThoseOfCosign checks that the agent accepts a key's signature of an image exactly when cosign does, for
// all ways in which cosign attaches signatures.
func TestSignersAreThoseOfCosign(t *testing.T) {
	t.Parallel()
	var needed sync.Map // rows of the intentional differences that occurred
	t.Cleanup(func() {
		if story.SoakRounds(t, signedImages) < signedImages {
			return
		}
		for _, rows := range []map[string]string{refusedOnPurpose, takenOnPurpose} {
			for odd, why := range rows {
				_, used := needed.Load(odd)
				assert.True(t, used, "no difference by %q: %s", odd, why)
			}
		}
	})
	for _, part := range cosigns {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			rounds, r := inputs(t, signedImages)
			c, images := startCosign(t, part), cosignImages{r, newCosignKeys(t)}
			alone := images.alone()
			said := comparedSigned{agreed: map[bool]int{}, needed: &needed}
			for n := range rounds {
				at := min(n, len(alone))
				said.compare(t, n, c, images.keys, images.next(t, alone[at:min(at+1, len(alone))]...))
			}
			t.Logf("images: %d, signed by a key: %d, not: %d, on purpose: %d",
				rounds, said.agreed[true], said.agreed[false], said.different)
			assert.Greater(t, said.agreed[true], rounds/5)
			assert.Greater(t, said.agreed[false], rounds/5)
		})
	}
}

// comparedSigned counts the verifications of an image with a key.
type comparedSigned struct {
	agreed    map[bool]int // by result
	different int          // intentional differences
	needed    *sync.Map
}

// compare verifies with each key that has signed the image, with one that has not, and with all of them together.
func (s *comparedSigned) compare(t *testing.T, n int, c cosign, keys cosignKeys, image cosignImage) {
	t.Helper()
	names, pems := image.asked(t, n, keys)
	theirs := c.ways(t, image.cosignRegistry, pems, image.digests()...)
	var signers []string
	for k, name := range names {
		got, err := image.verify(t, pems[k])
		if err == nil {
			signers = append(signers, got.Keys...)
		}
		if (err == nil) == (len(theirs[k]) > 0) {
			s.agreed[err == nil]++
			continue
		}
		odd := onPurposeSigned(image, name, err == nil)
		s.different++
		s.needed.Store(odd, true)
		assert.NotEmpty(t, odd, "%d: %s: cosign: signed %v, the agent: %v %v\n%s",
			n, name, slices.Sorted(maps.Keys(theirs[k])), got, err, image)
	}
	got, err := image.verify(t, pems...)
	assert.Equal(t, len(signers) > 0, err == nil, "%d: with all keys: %v\n%s", n, err, image)
	if err == nil {
		assert.Subset(t, signers, got.Keys, "%d\n%s", n, image)
	}
}

// asked returns the keys that have signed, and one that has not.
func (i cosignImage) asked(t *testing.T, n int, keys cosignKeys) (names, pems []string) {
	t.Helper()
	names = []string{known[n%len(known)]}
	for _, s := range i.signed {
		if slices.Contains(known, s.key) && !slices.Contains(names, s.key) {
			names = append(names, s.key)
		}
	}
	for _, name := range names {
		pems = append(pems, keys.public(t, name))
	}
	return names, pems
}

// digests returns the digests whose signatures count.
func (i cosignImage) digests() []digest.Digest {
	if i.platform == "" {
		return []digest.Digest{i.index}
	}
	return []digest.Digest{i.index, i.platform}
}

// verify has the agent look for a signature by one of the keys.
func (i cosignImage) verify(t *testing.T, keys ...string) (signature.Verdict, error) {
	t.Helper()
	var pems [][]byte
	for _, key := range keys {
		pems = append(pems, []byte(key))
	}
	v, err := signature.WithKeys(1, pems...)
	require.NoError(t, err)
	return v.Verify(t.Context(), i.cosignRegistry, cosignHost+"/"+i.Repository, i.index, i.platform)
}

// The reasons of intentional differences.
const (
	ofTheName     = "a signature is for a repository: that of another one proves nothing"
	ofAttestation = "an attestation is no signature"
	ofPayload     = "a payload is read as containers/image reads it: of its type, no other keys, none twice"
	ofBundle      = "a bundle is read as signers write it: JSON's names, strict base64, the version and statement of today"
	ofLayer       = "the specifications say what type a layer has"
	ofList        = "a manifest says what an artifact is, and a list says the same"
	ofOneLayer    = "cosign reads a payload of two layers once, by the size in the first"
	ofUnsigned    = "what no key has signed proves nothing: certificates, logs, times, hints, keys of JSON"
	ofStatement   = "a statement with the digest is one, whatever else it has: in-toto has other keys ignored"
)

// refusedOnPurpose are the oddities with which cosign accepts a signature, and the agent does not, with the reason.
var refusedOnPurpose = map[string]string{
	"another identity": ofTheName, "no identity": ofTheName, "identity with another digest": ofTheName,
	"another subject's name": ofTheName,
	"another predicate":      ofAttestation, "no predicate": ofAttestation, "a manifest that says attestation": ofAttestation,
	"a new critical key": ofPayload, "a new key": ofPayload, "a key twice": ofPayload, "another kind": ofPayload,
	"no kind":        ofPayload,
	"base64 of URLs": ofBundle, "base64 without its padding": ofBundle,
	"names of protobuf": ofBundle, "no statement": ofBundle, "statement 0.1": ofBundle, "version 0.3.1": ofBundle,
	"the digest in upper case": ofBundle,
	"a layer of another type":  ofLayer, "a layer of bundle 0.1": ofLayer, "another media type": ofLayer,
	"the media type of layers": ofLayer,
	"a list with another type": ofList, "a list without types": ofList, "a manifest of another type": ofList,
	"a manifest without a type": ofList,
	"another size":              ofOneLayer,
}

// takenOnPurpose are the oddities with which the agent accepts a signature, and cosign does not, with the reason. The
// key has signed each of them.
var takenOnPurpose = map[string]string{
	"a certificate": ofUnsigned, "a chain": ofUnsigned, "a garbled log entry": ofUnsigned, "a garbled timestamp": ofUnsigned,
	"empty material": ofUnsigned, "no material": ofUnsigned, "an id of the key": ofUnsigned, "a new key": ofUnsigned,
	"a key in another case": ofUnsigned, "another digest": ofUnsigned, "no digest": ofUnsigned,
	"a digest that is no hex": ofStatement, "a new key of the payload": ofStatement, "a subject of null": ofStatement,
	"a subject first of null": ofStatement,
}

// onPurposeSigned returns the oddity that explains why agent and cosign differ about a key's signature; signed is the
// agent's result. Empty: the difference is not intentional.
func onPurposeSigned(image cosignImage, key string, signed bool) string {
	table := refusedOnPurpose
	if signed {
		table = takenOnPurpose
	}
	referrers := map[digest.Digest]int{}
	for _, s := range image.signed {
		if s.way == "referrers" {
			referrers[s.of]++
		}
		for _, odd := range []string{s.odd, s.in} {
			if table[odd] != "" && s.key == key {
				return odd
			}
		}
	}
	if signed && slices.Max(append(slices.Collect(maps.Values(referrers)), 0)) > 1 {
		return "cosign tries only the last of several referrers"
	}
	return ""
}
