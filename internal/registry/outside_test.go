// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

// A host's text is in the error, the status and the record: a number of four megabytes, which the JSON parser quotes
// completely, once filled all three.
func TestErrorsQuoteAtMostALine(t *testing.T) {
	t.Parallel()
	digits, escapes := strings.Repeat("1", maxManifest-100), strings.Repeat(`\u001b[2J\u202e`, 10_000)
	for name, body := range map[string]string{
		"a number":         `{"schemaVersion": ` + digits + `}`,
		"a number as text": `{"schemaVersion": 2, "mediaType": ` + digits + `}`,
		"an escape":        `{"schemaVersion": 2, "mediaType": "` + escapes + `"}`,
		"a digest":         `{"schemaVersion": 2, "config": {"digest": "` + escapes + `"}}`,
		"a size":           `{"schemaVersion": 2, "config": {"size": ` + digits + `}}`,
		"a key":            `{"schemaVersion": 2, "` + escapes + `": ` + digits + `, "config": ` + digits + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			desc := f.set(ocispec.MediaTypeImageManifest, []byte(body))
			config := f.set(ocispec.MediaTypeImageConfig, []byte(`{"config": `+digits[:1<<20]+`}`))
			r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
			_, err := r.Describe(t.Context(), f.repository(), desc.Digest)
			assertLine(t, err)
			_, err = r.Describe(t.Context(), f.repository(), f.manifest(t, config, nil).Digest)
			assertLine(t, err)
			f.answer(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"tags": [` + digits[:1<<19] + `]}`))
			})
			_, err = r.Tags(t.Context(), f.repository())
			assertLine(t, err)
			f.answer(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/"+digits[:1<<14])
				w.Header().Set(digestHeader, digits[:1<<14])
			})
			_, err = r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
			assertLine(t, err)
		})
	}
}

// assertLine asserts that an error is one printable line: of the repository, the host and a shortened cause.
func assertLine(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	text := err.Error()
	assert.Less(t, len(text), outside.MaxError+100)
	assert.Equal(t, text, outside.Line(text, len(text)))
}

// The outermost error of a host is shortened, whatever it wraps.
func TestErrorsOfAHostAreOneLine(t *testing.T) {
	t.Parallel()
	long := errors.New(strings.Repeat("x\n", 1<<10))
	for _, f := range []*release.SourceError{
		endpoint{}.failed(long), endpoint{}.failed(&transport.Refused{Status: http.StatusUnauthorized, Err: long}),
		endpoint{}.failed(fmt.Errorf("%w: %w", &transport.Held{Host: "elsewhere", Led: true}, long)),
	} {
		assert.Equal(t, outside.Line(f.Err.Error(), outside.MaxError), f.Err.Error())
	}
}
