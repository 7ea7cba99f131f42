// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

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
