// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/containerd/log"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

const (
	secret      = registrytest.Secret
	secretToken = registrytest.SecretToken
)

// The limits of internal/registry/transport, as docs/dev/security-evidence.md has them.
const (
	maxToken           = 64 << 10
	maxHeader          = 64 << 10
	maxRedirects       = 9
	maxChallenges      = 4
	maxRetryAfter      = 24 * time.Hour
	maxPaced           = 256
	openAfter          = 3
	openFor            = time.Minute
	connectionsPerHost = 4
	dialTimeout        = 10 * time.Second
	tlsTimeout         = 10 * time.Second
	headerTimeout      = 30 * time.Second
	patientTimeout     = 50 * time.Second
	exchangeTimeout    = 60 * time.Second
	stallTimeout       = 60 * time.Second
)

type roundTripper = registrytest.RoundTripper

var (
	put         = registrytest.Put
	text        = registrytest.Text
	environ     = registrytest.Environ
	authJSONOf  = registrytest.AuthJSON
	encodedAuth = registrytest.EncodedAuth
	certificate = registrytest.Certificate
	secretIn    = registrytest.SecretIn
)

// TestMain checks the log output of containerd's library, at the agent's level for it.
func TestMain(m *testing.M) {
	logged := new(bytes.Buffer)
	log.L.Logger.SetOutput(logged)
	if err := log.SetLevel("error"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if secretIn(logged.String()) {
			fmt.Println("FAIL: containerd logged a secret:", logged)
			code = 1
		}
		os.Exit(code)
	}))
}
