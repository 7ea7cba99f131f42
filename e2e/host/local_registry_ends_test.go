// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// asksAlways is a program that calls the local registry repeatedly until a file exists. It prints how many calls
// failed, and once that one succeeded.
const asksAlways = `use IO::Socket::INET;
my %n;
until (-e "/run/enough") {
	my $s = IO::Socket::INET->new("127.0.0.1:334");
	print $s "HEAD /v2/caasp/velum/manifests/4.0.0-rev1?ns=registry.suse.com HTTP/1.1\r\nHost: x\r\nUser-Agent: containerd/1.7.24\r\n\r\n" if $s;
	my $answer = $s ? <$s> : "$!";
	$n{($answer // "") =~ /^HTTP.1.1 200 / ? "answered" : "lost"}++;
}
print "answered\n" if $n{answered};
print "lost: $n{lost}\n" if $n{lost};
`

// TestHostNoClientIsLost ends the local registry's processes one after the other, idle or at the end of their lifetime.
// Each client that calls meanwhile gets its response.
func TestHostNoClientIsLost(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, _ := story.WithLocalRegistry(t, root)
		h.WriteFile("/usr/bin/asks", asksAlways)
		require.Contains(t, []string{"running", "degraded"}, h.Boot()) // "degraded", since there is no kubelet
		end := h.Begin("perl", "/usr/bin/asks")
		for last, lives := "", 0; lives < 4; {
			node.Eventually(t, "next process", node.Patience, func() error {
				now := h.Show(story.LocalRegistryService, "InvocationID")["InvocationID"]
				if now == "" || now == last {
					return errors.New("the same process, or none")
				}
				last, lives = now, lives+1
				return nil
			})
		}
		h.WriteFile("/run/enough", "")
		assert.Equal(t, "answered\n", end().Stdout)
		assert.Equal(t, "success", h.Show(story.LocalRegistrySocket, "Result")["Result"])
	})
}

// TestHostLocalRegistryFails checks that clients of a local registry whose program is broken are refused soon, so that
// containerd goes on to the next host, and that the local registry works again as soon as the program does, however
// often it failed.
func TestHostLocalRegistryFails(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, _ := story.WithLocalRegistry(t, root)
		h.WriteFile("/usr/bin/asks", asksLocalRegistry)
		require.Contains(t, []string{"running", "degraded"}, h.Boot())
		for fault, program := range map[string]string{
			"crashes": "sh -c 'kill -SEGV $$$$'", "hangs": "sh -c 'kill -STOP $$$$'", "is not there": "/usr/bin/nothing",
		} {
			h.DropIn(story.LocalRegistryService, "[Service]\n"+"ExecStart=\n"+"ExecStart="+program+"\n")
			h.Await(story.LocalRegistryService, "ActiveState", "inactive") // the latest process ended without error
			rounds := 7                                                    // systemd's default limit is five starts in ten seconds
			if fault == "hangs" {
				rounds = 1 // it takes six seconds to end it
			}
			for range rounds {
				open := h.Show(story.LocalRegistrySocket, "InvocationID")
				assert.NotContains(t, h.Exec("perl", "/usr/bin/asks").Stdout, "HTTP", fault)
				h.Await(story.LocalRegistryService, "ActiveState", "failed")
				node.Eventually(t, fault+": the port is open again", node.Patience, func() error {
					if now := h.Show(story.LocalRegistrySocket, "InvocationID"); maps.Equal(now, open) {
						return errors.New("it has not been closed")
					}
					return nil
				})
				h.Await(story.LocalRegistrySocket, "ActiveState", "active")
			}
			h.DropIn(story.LocalRegistryService, story.BusyMachine)
			node.Eventually(t, fault+": answer", node.Patience, func() error {
				if r := h.Exec("perl", "/usr/bin/asks"); !strings.HasPrefix(r.Stdout, "HTTP/1.1 200 OK") {
					return errors.New(r.Stdout + r.Stderr)
				}
				return nil
			})
		}
		h.Must("systemctl", "stop", story.LocalRegistrySocket)
		h.Await(story.LocalRegistryService, "ActiveState", "inactive")
		assert.Equal(t, "success", h.Show(story.LocalRegistryService, "Result")["Result"])
		assert.Contains(t, h.Exec("perl", "/usr/bin/asks").Stderr, "Connection refused")
	})
}

// TestHostLocalRegistryOfAnOlderPackage replaces the units of an older package, which ran a process for each
// connection, while the port is open. The socket stays the same.
func TestHostLocalRegistryOfAnOlderPackage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, _ := story.WithLocalRegistry(t, root)
		h.WriteFile("/usr/bin/asks", asksLocalRegistry)
		h.WriteFile("/etc/systemd/system/"+story.LocalRegistrySocket, "[Socket]\nListenStream=127.0.0.1:334\nAccept=yes\n")
		h.WriteFile("/etc/systemd/system/image-update-agent-local-registry@.service",
			"[Service]\nExecStart=-echo old\nStandardInput=socket\nStandardOutput=socket\n")
		require.Contains(t, []string{"running", "degraded"}, h.Boot())
		h.Must("systemctl", "start", story.LocalRegistrySocket)
		assert.Equal(t, "old\n", h.Must("perl", "/usr/bin/asks")+"\n")
		inode := h.Must("ss", "-Hltne", "sport", "=", "334")
		h.Must("sh", "-c", "rm /etc/systemd/system/image-update-agent-local-registry*; systemctl daemon-reload")
		isOwnAnswer(t, h.Must("perl", "/usr/bin/asks"))
		assert.Equal(t, inode, h.Must("ss", "-Hltne", "sport", "=", "334"))
	})
}
