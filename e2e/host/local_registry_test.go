// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// asksLocalRegistry is a program that asks the local registry for velum, and prints the response.
const asksLocalRegistry = `use IO::Socket::INET;
my $s = IO::Socket::INET->new("127.0.0.1:334") or die "$!\n";
print $s "HEAD /v2/caasp/velum/manifests/4.0.0-rev1?ns=registry.suse.com HTTP/1.1\r\nHost: x\r\nUser-Agent: containerd/1.7.24\r\n\r\n";
print <$s>;
`

// listens is a program that listens on a port of 127.0.0.1, and ends.
const listens = `use IO::Socket::INET;
IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1:$ARGV[0]") or die "$!\n";
`

// TestHostLocalRegistry checks that the local registry listens before kubelet starts, within the sandbox of its unit.
// systemd holds its port; while the port is free, only root may bind it. The local registry stays available under many
// requests.
func TestHostLocalRegistry(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, _ := story.WithLocalRegistry(t, root)
		story.StubKubelet(h)
		h.WriteFile("/usr/bin/asks", asksLocalRegistry)
		h.WriteFile("/usr/bin/listens", listens)
		h.DropIn("kubelet.service", "[Service]\nExecStartPre=sh -c 'perl /usr/bin/asks >/run/answer'\n")
		require.Equal(t, "running", h.Boot())
		isOwnAnswer(t, h.ReadFile("/run/answer"))
		assert.Contains(t, h.Must("ss", "-Hltnp", "sport", "=", "334"), `("systemd",pid=1,`)
		for range 50 {
			isOwnAnswer(t, h.Must("perl", "/usr/bin/asks"))
		}
		h.Await(story.LocalRegistryService, "ActiveState", "inactive")
		assert.Equal(t, map[string]string{"ActiveState": "active", "Result": "success"}, h.Show(story.LocalRegistrySocket, "ActiveState", "Result"))
		isOwnAnswer(t, h.Must("perl", "/usr/bin/asks"))
		assert.Empty(t, h.Must("systemctl", "list-units", "--failed", "--no-legend"))

		h.AddUser("joe")
		joe := func(port string) host.Result {
			return h.Run(host.Command{User: "joe", Argv: []string{"perl", "/usr/bin/listens", port}})
		}
		assert.Contains(t, joe("334").Stderr, "ermission denied")
		h.Must("systemctl", "stop", story.LocalRegistrySocket)
		assert.Contains(t, joe("334").Stderr, "ermission denied", "it is free")
		assert.Equal(t, 0, joe("10334").Code)
		assert.Contains(t, h.Exec("perl", "/usr/bin/asks").Stderr, "Connection refused")
	})
}

func isOwnAnswer(t *testing.T, answer string) {
	t.Helper()
	assert.True(t, strings.HasPrefix(answer, "HTTP/1.1 200 OK\r\n"), "%q", answer)
	assert.Contains(t, answer, "Docker-Content-Digest: sha256:1111")
}
