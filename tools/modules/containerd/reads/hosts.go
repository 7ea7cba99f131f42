// SPDX-License-Identifier: Apache-2.0

// Command reads answers requests with the code of one version of containerd: see package reads. The other file has the
// names of that version, and reads its configuration.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/tools/modules/reads"
)

const file = "/etc/containerd/config.toml"

func answer(ctx context.Context, r reads.Request) (a reads.Answer, err error) {
	switch {
	case r.Root != "":
		err = reads.In(r.Root, func() error {
			a.Config, err = configured(ctx, r)
			return err
		})
	case r.Pull != "":
		a.Pulled, err = pulled(ctx, r)
	default:
		a.Hosts, err = hosts(ctx, r)
	}
	return a, err
}

// registryHosts returns the hosts as the CRI plugin does (registryHosts, hostDirFromRoots).
func registryHosts(ctx context.Context, r reads.Request) hostsOf {
	options := hostOptions{DefaultScheme: r.Scheme, HostDir: func(host string) (string, error) {
		for _, dir := range r.CertsDirs {
			found, err := hostDirFromRoot(dir)(host)
			if (err != nil && !isNotFound(err)) || found != "" {
				return found, err
			}
		}
		return "", errNotFound
	}}
	if r.User != "" {
		options.Credentials = func(string) (string, string, error) { return r.User, r.Password, nil }
	}
	return configureHosts(ctx, options)
}

func hosts(ctx context.Context, r reads.Request) ([]reads.Host, error) {
	found, err := registryHosts(ctx, r)(r.Namespace)
	if err != nil {
		return nil, err
	}
	all := []reads.Host{}
	for _, f := range found {
		h := reads.Host{
			Scheme: f.Scheme, Host: f.Host, Path: f.Path, Header: f.Header,
			Pull: f.Capabilities.Has(mayPull), Resolve: f.Capabilities.Has(mayResolve),
		}
		reads.Describe(&h, f.Client)
		all = append(all, h)
	}
	return all, nil
}

// pulled requests all parts of an image, as a pull does.
func pulled(ctx context.Context, r reads.Request) (*reads.Pulled, error) {
	resolver := newResolver(resolverOptions{Hosts: registryHosts(ctx, r)})
	name, desc, err := resolver.Resolve(ctx, r.Pull)
	if err != nil {
		return nil, err
	}
	p := &reads.Pulled{Digest: desc.Digest.String()}
	fetcher, err := resolver.Fetcher(ctx, name)
	if err != nil {
		return nil, err
	}
	manifest, err := fetch(func() (io.ReadCloser, error) { return fetcher.Fetch(ctx, desc) }, desc)
	if err != nil {
		p.Missing = fmt.Sprintf("%s: %v", desc.Digest, err)
		return p, nil
	}
	blobs, err := reads.Blobs(manifest)
	if err != nil {
		return nil, err
	}
	for _, b := range blobs {
		blob := ocispec.Descriptor{Digest: digest.Digest(b.Digest), Size: b.Size, MediaType: b.MediaType}
		if _, err := fetch(func() (io.ReadCloser, error) { return fetcher.Fetch(ctx, blob) }, blob); err != nil {
			p.Missing = fmt.Sprintf("%s: %v", b.Digest, err)
			return p, nil
		}
	}
	return p, nil
}

// fetch reads a blob completely, and verifies its digest, as the content store does.
func fetch(open func() (io.ReadCloser, error), desc ocispec.Descriptor) ([]byte, error) {
	body, err := open()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err == nil && digest.FromBytes(data) != desc.Digest {
		err = fmt.Errorf("content has digest %s", digest.FromBytes(data))
	}
	return data, err
}
