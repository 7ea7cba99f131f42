// SPDX-License-Identifier: Apache-2.0

package registry

import "github.com/kubic-project/image-update-agent/internal/registry/registrytest"

const (
	secret      = registrytest.Secret
	secretToken = registrytest.SecretToken
)

type roundTripper = registrytest.RoundTripper

var (
	put         = registrytest.Put
	text        = registrytest.Text
	environ     = registrytest.Environ
	authJSONOf  = registrytest.AuthJSON
	encodedAuth = registrytest.EncodedAuth
	certificate = registrytest.Certificate
	issue       = registrytest.Issue
	writePEM    = registrytest.WritePEM
	secretIn    = registrytest.SecretIn
)
