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

// asksAlways is a program that asks the own host again and again until a file is there, and prints how often it was not
// answered, and once that it was.
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

// One process after the other ends, idle or old. Nobody who asks meanwhile is lost.
func TestHostNoClientIsLost(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, _ := story.WithOwnHost(t, root)
		h.WriteFile("/usr/bin/asks", asksAlways)
		require.Contains(t, []string{"running", "degraded"}, h.Boot()) // there is no kubelet
		end := h.Begin("perl", "/usr/bin/asks")
		for last, lives := "", 0; lives < 4; {
			node.Eventually(t, "next process", node.Patience, func() error {
				now := h.Show(story.OwnService, "InvocationID")["InvocationID"]
				if now == "" || now == last {
					return errors.New("the same process, or none")
				}
				last, lives = now, lives+1
				return nil
			})
		}
		h.WriteFile("/run/enough", "")
		assert.Equal(t, "answered\n", end().Stdout)
		assert.Equal(t, "success", h.Show(story.OwnSocket, "Result")["Result"])
	})
}

// Whatever is wrong with the program, who asks is refused soon and containerd goes on to the next host; and however often
// it fails, the own host is there as soon as the program is well.
func TestHostOwnHostFails(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, _ := story.WithOwnHost(t, root)
		h.WriteFile("/usr/bin/asks", asksOwnHost)
		require.Contains(t, []string{"running", "degraded"}, h.Boot())
		for fault, program := range map[string]string{
			"crashes": "sh -c 'kill -SEGV $$$$'", "hangs": "sh -c 'kill -STOP $$$$'", "is not there": "/usr/bin/nothing",
		} {
			h.DropIn(story.OwnService, "[Service]\n"+"ExecStart=\n"+"ExecStart="+program+"\n")
			h.Await(story.OwnService, "ActiveState", "inactive") // the process that answered last was well
			for range 7 {                                        // systemd's default ends what is started six times in ten seconds
				open := h.Show(story.OwnSocket, "InvocationID")
				assert.NotContains(t, h.Exec("perl", "/usr/bin/asks").Stdout, "HTTP", fault)
				h.Await(story.OwnService, "ActiveState", "failed")
				node.Eventually(t, fault+": the port is open again", node.Patience, func() error {
					if now := h.Show(story.OwnSocket, "InvocationID"); maps.Equal(now, open) {
						return errors.New("it has not been closed")
					}
					return nil
				})
				h.Await(story.OwnSocket, "ActiveState", "active")
			}
			h.DropIn(story.OwnService, story.BusyMachine)
			node.Eventually(t, fault+": answer", node.Patience, func() error {
				if r := h.Exec("perl", "/usr/bin/asks"); !strings.HasPrefix(r.Stdout, "HTTP/1.1 200 OK") {
					return errors.New(r.Stdout + r.Stderr)
				}
				return nil
			})
		}
		h.Must("systemctl", "stop", story.OwnSocket)
		h.Await(story.OwnService, "ActiveState", "inactive")
		assert.Equal(t, "success", h.Show(story.OwnService, "Result")["Result"])
		assert.Contains(t, h.Exec("perl", "/usr/bin/asks").Stderr, "Connection refused")
	})
}

// The units of a package that had one process for each connection make room for those of this one while the port is
// open, and it stays the same socket.
func TestHostOwnHostOfAnOlderPackage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, _ := story.WithOwnHost(t, root)
		h.WriteFile("/usr/bin/asks", asksOwnHost)
		h.WriteFile("/etc/systemd/system/"+story.OwnSocket, "[Socket]\nListenStream=127.0.0.1:334\nAccept=yes\n")
		h.WriteFile("/etc/systemd/system/image-update-agent-localhost@.service",
			"[Service]\nExecStart=-echo old\nStandardInput=socket\nStandardOutput=socket\n")
		require.Contains(t, []string{"running", "degraded"}, h.Boot())
		h.Must("systemctl", "start", story.OwnSocket)
		assert.Equal(t, "old\n", h.Must("perl", "/usr/bin/asks")+"\n")
		inode := h.Must("ss", "-Hltne", "sport", "=", "334")
		h.Must("sh", "-c", "rm /etc/systemd/system/image-update-agent-localhost*; systemctl daemon-reload")
		isOwnAnswer(t, h.Must("perl", "/usr/bin/asks"))
		assert.Equal(t, inode, h.Must("ss", "-Hltne", "sport", "=", "334"))
	})
}
