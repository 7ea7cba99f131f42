// SPDX-License-Identifier: Apache-2.0

// Command registry is the registry of distribution 3 with the drivers of a directory and of memory. The main package of
// that release adds the drivers of every cloud, whose SDKs take longer to compile than all the rest.
//
//	registry serve CONFIG
package main

import (
	"os"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/auth/token"
	_ "github.com/distribution/distribution/v3/registry/proxy"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
)

func main() {
	if registry.RootCmd.Execute() != nil { // it has printed the error
		os.Exit(1)
	}
}
