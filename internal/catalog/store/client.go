// SPDX-License-Identifier: Apache-2.0

// Package store reads and writes manifests, blobs and tags of registries, for the publisher of
// catalogs. Nodes have internal/registry, which knows containerd's hosts and never writes.
//
// Requests are repeated after 5xx, 429, broken connections, and the errors
// that distribution 2.8 gives to two clients that write at once. What a registry sends is bounded,
// in time, too, and compared with its digest. Logins are those of docker and podman, with their credential
// helpers.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Options configure a Client.
type Options struct {
	PlainHTTP bool // http where there is no https
	UserAgent string
	Keychain  authn.Keychain    // nil: DOCKER_AUTH_CONFIG, docker's and podman's logins and credential helpers
	Transport http.RoundTripper // nil: connections with time limits
}

// ErrNoDelete: the registry does not allow deletions.
var ErrNoDelete = errors.New("the registry does not allow deletions")

// Client sends requests to registries. It is safe for concurrent use.
type Client struct {
	keychain  authn.Keychain
	transport http.RoundTripper
	pusher    *remote.Pusher
	plain     bool
	dated     *atomic.Int64 // what a registry has answered last as its time, in seconds; 0: it is not known
	logins    sync.Map      // of *login, by the name of a repository
}

// New returns a client. It sends no request.
func New(o Options) (*Client, error) {
	c := &Client{keychain: o.Keychain, plain: o.PlainHTTP, dated: &atomic.Int64{}}
	if c.keychain == nil {
		c.keychain = authn.NewMultiKeychain(environment{}, authn.DefaultKeychain)
	}
	inner := o.Transport
	if inner == nil {
		inner = &connections{dial: (&net.Dialer{Timeout: dialTimeout}).DialContext}
	}
	send := sender{inner, c.dated}
	c.transport = transport.NewUserAgent(send, o.UserAgent)
	var err error
	c.pusher, err = remote.NewPusher(
		remote.WithAuthFromKeychain(c.keychain), remote.WithUserAgent(o.UserAgent), remote.WithTransport(send),
		remote.WithRetryStatusCodes(), remote.WithRetryBackoff(remote.Backoff{Steps: 1}), // the sender repeats
	)
	return c, err
}

// Date returns the last date that a registry has sent; zero: none.
func (c *Client) Date() time.Time {
	if at := c.dated.Load(); at != 0 {
		return time.Unix(at, 0)
	}
	return time.Time{}
}

// CheckRepository refuses a normalised name that no registry takes: its host has neither a dot nor a port, for example.
func CheckRepository(repository string) error {
	_, err := new(Client).repository(repository)
	return err
}

// repository returns a repository of a registry by its normalised name.
func (c *Client) repository(repository string) (name.Repository, error) {
	var options []name.Option
	if c.plain {
		options = append(options, name.Insecure)
	}
	r, err := name.NewRepository(repository, options...)
	if err != nil {
		return name.Repository{}, fmt.Errorf("%s: %w", outside.Text(repository), outside.Error(err))
	}
	return r, nil
}

// reference returns a tag or digest of a repository.
func (c *Client) reference(repository, tagOrDigest string) (name.Reference, error) {
	r, err := c.repository(repository)
	if err != nil {
		return nil, err
	}
	if digest.Digest(tagOrDigest).Validate() == nil {
		return r.Digest(tagOrDigest), nil
	}
	return r.Tag(tagOrDigest), nil
}

// get sends a request of a repository, and repeats it.
func get[T any](
	ctx context.Context, c *Client, repository, tagOrDigest string, do func(name.Reference) (T, error),
) (T, error) {
	var out T
	ref, err := c.reference(repository, tagOrDigest)
	if err != nil {
		return out, err
	}
	err = repeat(ctx, func() error {
		out, err = do(ref)
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", ref, kindOf(err))
	}
	return out, err
}

// PutBlob stores a blob.
func (c *Client) PutBlob(ctx context.Context, repository string, data []byte) (catalog.BlobRef, error) {
	ref := catalog.BlobRef{Digest: digest.FromBytes(data), Size: int64(len(data))}
	_, err := get(ctx, c, repository, ref.Digest.String(), func(to name.Reference) (struct{}, error) {
		return struct{}{}, c.pusher.Upload(ctx, to.Context(), static.NewLayer(data, types.OCILayer))
	})
	return ref, err
}

// rawManifest is a manifest as bytes.
type rawManifest []byte

func (m rawManifest) RawManifest() ([]byte, error) { return m, nil }

func (m rawManifest) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// PutManifest stores an OCI manifest under a tag. Its blobs are stored already, except OCI's empty one, which it stores
// if that is missing.
func (c *Client) PutManifest(ctx context.Context, repository, tag string, body []byte) error {
	_, err := get(ctx, c, repository, tag, func(to name.Reference) (struct{}, error) {
		err := c.pusher.Put(ctx, to, rawManifest(body))
		if hasCode(err, transport.ManifestBlobUnknownErrorCode, blobUnknownInManifest) {
			empty := static.NewLayer(ocispec.DescriptorEmptyJSON.Data, types.OCILayer)
			if err = c.pusher.Upload(ctx, to.Context(), empty); err == nil {
				err = c.pusher.Put(ctx, to, rawManifest(body))
			}
		}
		return struct{}{}, err
	})
	return err
}

// Remove deletes a manifest with all its tags.
func (c *Client) Remove(ctx context.Context, repository string, d digest.Digest) error {
	_, err := get(ctx, c, repository, d.String(), func(ref name.Reference) (struct{}, error) {
		return struct{}{}, c.pusher.Delete(ctx, ref)
	})
	switch e, ok := errors.AsType[*transport.Error](err); {
	case errors.Is(err, release.ErrNotFound):
		return nil
	case ok && e.StatusCode == http.StatusMethodNotAllowed:
		return fmt.Errorf("%s: %w", repository, ErrNoDelete)
	}
	return err
}

// authVariable has the text of docker's config.json. CI systems set it from a secret, so that a job needs no file.
const authVariable = "DOCKER_AUTH_CONFIG"

// environment has the logins of authVariable.
type environment struct{}

// Resolve returns the login of a repository or of its registry.
func (environment) Resolve(of authn.Resource) (authn.Authenticator, error) {
	text, isSet := os.LookupEnv(authVariable)
	if !isSet {
		return authn.Anonymous, nil
	}
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return nil, fmt.Errorf("%s: %w", authVariable, outside.Syntax("JSON with auths, as in docker's config.json", err))
	}
	for _, name := range []string{of.String(), of.RegistryStr()} {
		if login, ok := config.Auths[name]; ok {
			return authn.FromConfig(login), nil
		}
	}
	return authn.Anonymous, nil
}

// Sizes for registries that never end; a node has the same for manifests and tag lists.
const (
	maxManifest = catalog.MaxManifest
	maxBlob     = 8 << 20  // a page, a list of ops, the config of an image
	maxTagPage  = 32 << 20 // Google's registries send all tags at once, with megabytes of manifests
	maxTagList  = 64 << 20 // bytes of all pages
	maxTags     = 500_000  // a catalog has three for each version, until it is pruned
	maxPages    = 1000
	pageSize    = 1000
	maxAnswer   = maxTagPage // of anything
	maxSent     = 16 << 20   // bytes of a request
	maxHeader   = 64 << 10
	maxRedirect = 5
)

// Times for registries that are slow or silent.
const (
	dialTimeout  = 10 * time.Second
	tlsTimeout   = 10 * time.Second
	stallTimeout = 30 * time.Second // no byte in either direction
	sendTimeout  = 5 * time.Minute  // one request and its answer
	listTimeout  = 5 * time.Minute  // all pages of a tag list
)

// Repeats of one request.
const (
	// MaxAttempts is how often a request is sent at most, within about 12 seconds.
	MaxAttempts = 7
	firstWait   = 100 * time.Millisecond
	longestWait = 5 * time.Second
	// repeatTime is how long after the first attempt the last one begins at most. A registry that
	// wants a longer wait has its answer reported.
	repeatTime = 45 * time.Second
)
