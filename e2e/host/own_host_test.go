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

// asksOwnHost is a program that asks the own host for velum, and prints the answer.
const asksOwnHost = `use IO::Socket::INET;
my $s = IO::Socket::INET->new("127.0.0.1:334") or die "$!\n";
print $s "HEAD /v2/caasp/velum/manifests/4.0.0-rev1?ns=registry.suse.com HTTP/1.1\r\nHost: x\r\nUser-Agent: containerd/1.7.24\r\n\r\n";
print <$s>;
`

// listens is a program that listens at a port of 127.0.0.1, and ends.
const listens = `use IO::Socket::INET;
IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1:$ARGV[0]") or die "$!\n";
`

// The own host is there when kubelet is started, under all that its unit takes from it. Its port is process 1's; while it
// is free, nobody but root may take it. However often it is asked, it stays.
func TestHostOwnHost(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, _ := story.WithOwnHost(t, root)
		hostKubelet(h)
		h.WriteFile("/usr/bin/asks", asksOwnHost)
		h.WriteFile("/usr/bin/listens", listens)
		h.DropIn("kubelet.service", "[Service]\nExecStartPre=sh -c 'perl /usr/bin/asks >/run/answer'\n")
		require.Equal(t, "running", h.Boot())
		isOwnAnswer(t, h.ReadFile("/run/answer"))
		assert.Contains(t, h.Must("ss", "-Hltnp", "sport", "=", "334"), `("systemd",pid=1,`)
		for range 50 {
			isOwnAnswer(t, h.Must("perl", "/usr/bin/asks"))
		}
		h.Await(story.OwnService, "ActiveState", "inactive")
		assert.Equal(t, map[string]string{"ActiveState": "active", "Result": "success"}, h.Show(story.OwnSocket, "ActiveState", "Result"))
		isOwnAnswer(t, h.Must("perl", "/usr/bin/asks"))
		assert.Empty(t, h.Must("systemctl", "list-units", "--failed", "--no-legend"))

		h.AddUser("joe")
		joe := func(port string) host.Result {
			return h.Run(host.Command{User: "joe", Argv: []string{"perl", "/usr/bin/listens", port}})
		}
		assert.Contains(t, joe("334").Stderr, "ermission denied")
		h.Must("systemctl", "stop", story.OwnSocket)
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
