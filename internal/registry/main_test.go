// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/containerd/log"
	"go.uber.org/goleak"
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
