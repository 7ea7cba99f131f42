// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"errors"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/stage"
)

// Verifier is a stage.Verifier in memory.
type Verifier struct {
	mu     sync.Mutex
	key    string
	signed map[digest.Digest]string // by key; "forged": signed with an unknown key
	away   error
	asked  int
}

var _ stage.Verifier = (*Verifier)(nil)

var errNoKeys = errors.New("no usable public key")

// NewVerifier returns a verifier with one key.
func NewVerifier(key string) *Verifier {
	return &Verifier{key: key, signed: map[digest.Digest]string{}}
}

// Sign signs a digest with a key.
func (v *Verifier) Sign(d digest.Digest, key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.signed[d] = key
}

// Replace changes the trusted key; "" removes it.
func (v *Verifier) Replace(key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.key = key
}

// Away makes every verification fail with err; nil ends it.
func (v *Verifier) Away(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.away = err
}

// Asked counts the verifications since the last call.
func (v *Verifier) Asked() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.asked
	v.asked = 0
	return n
}

// Verify implements stage.Verifier.
func (v *Verifier) Verify(_ context.Context, r release.Release) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked++
	by, signed := v.signed[r.Digest]
	switch {
	case v.away != nil:
		return "", v.away
	case v.key == "":
		return "", errNoKeys
	case !signed:
		return "", release.ErrUnsigned
	case by != v.key:
		return "", release.ErrForged
	}
	return by, nil
}

// Keys implements stage.Verifier.
func (v *Verifier) Keys(context.Context) ([]string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.key == "" {
		return nil, errNoKeys
	}
	return []string{v.key}, nil
}
