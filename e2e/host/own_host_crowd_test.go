// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/localhost"
)

// crowds is a program that holds a number of connections to the own host and opens one anew for each that is cut, until
// a file is there. It makes a file when it had all of them. Of four, one says nothing, one half a request, one a byte now
// and then, and one a whole request of which it takes no answer.
const crowds = `use IO::Socket::INET; use IO::Select;
my ($many, $full, $enough) = @ARGV;
$SIG{PIPE} = "IGNORE";
my ($all, $n, @slow) = (IO::Select->new, 0);
until (-e $enough) {
	for (my $tries = 0; $all->count < $many && $tries < $many; $tries++) {
		my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => 334, Blocking => 0) or next;
		$all->add($s);
		my $kind = $n++ % 4;
		syswrite $s, "HEAD /v2/" if $kind == 1;
		push @slow, $s if $kind == 2;
		syswrite $s, "HEAD /v2/demo/velum/manifests/1?ns=x HTTP/1.1\r\nHost: x\r\n\r\n" if $kind == 3;
	}
	if ($all->count == $many && !-e $full) { open my $f, ">", $full }
	for my $s ($all->can_read(0.05)) {
		my $got = sysread $s, my $answer, 4096;
		if (!$got) { $all->remove($s); close $s }
	}
	@slow = grep { defined fileno $_ } @slow;
	syswrite $_, "H" for @slow;
}
`

// A user of the node and a pod with hostNetwork hold more connections to the own host than it serves at once, all the
// time. containerd gets each of its answers, which nobody else has for it.
func TestHostCrowdAtTheOwnHost(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		n := node.Start(t, node.Options{Containerd: node.Containerd2})
		first := behindTheGate(t, n)
		h := host.New(t, n, root)
		h.Install(host.PackagesOf(t).Older)
		story.HostFiles(h, n)
		h.WriteFile("/usr/bin/crowds", crowds)
		h.Enable(story.OwnSocket)
		h.DropIn(story.OwnService, story.BusyMachine)
		network := h.SharedNetwork()
		require.Contains(t, []string{"running", "degraded"}, h.Boot())
		h.Must("systemctl", "stop", host.Service) // which writes a table of its own
		h.WriteFile("/var/lib/image-update-agent/"+localhost.TableFile, n.ReadFile(story.OwnTable))
		n.Containerd.Stop()
		n.Containerd.StartIn(network)
		leave := holdTheOwnHost(t, n, h, network)
		for range 10 {
			image, err := n.CRI().Pull(story.OwnHostImage)
			require.NoError(t, err)
			assert.Equal(t, first, image)
		}
		leave()
		h.Await(story.OwnService, "ActiveState", "inactive")
		said := h.Journal(story.OwnService)
		assert.Contains(t, said, "clients of the own host were cut")
		starts := strings.Count(said, "Started ")
		assert.LessOrEqual(t, strings.Count(said, "were cut"), starts, "a process says it once")
		assert.Equal(t, map[string]string{"ActiveState": "active", "Result": "success"}, h.Show(story.OwnSocket, "ActiveState", "Result"))
		assert.Equal(t, "success", h.Show(story.OwnService, "Result")["Result"])
	})
}

// behindTheGate has an image come to a node, which then asks the own host first and cannot ask anybody else.
func behindTheGate(t *testing.T, n *node.Node) (image string) {
	t.Helper()
	n.WriteHosts(story.OwnHostRegistry, n.Registry)
	n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{Answer: "one"})
	image, err := n.CRI().Pull(story.OwnHostImage)
	require.NoError(t, err)
	require.NoError(t, localhost.NewStore(filepath.Dir(n.Path(story.OwnTable))).Save(t.Context(), ownhost.Table{Entries: []ownhost.Entry{
		story.EntryOf(t, n.Registry, "demo/velum", "4.0.0-rev1"),
	}}))
	story.OwnHostVerb(t, n, 0, "enable", story.OwnHostRegistry, "--gate", "--write")
	n.Registry.Down()
	return image
}

// holdTheOwnHost returns when two crowds hold their connections. leave ends them.
func holdTheOwnHost(t *testing.T, n *node.Node, h *host.Host, network string) (leave func()) {
	t.Helper()
	const many = "700" // each; a program may open 1024 files
	h.AddUser("joe")
	h.Must("install", "-d", "-o", "joe", "/run/joe")
	var crowd sync.WaitGroup
	crowd.Go(func() {
		r, err := h.Try(host.Command{User: "joe", Argv: []string{"perl", "/usr/bin/crowds", many, "/run/joe/full", "/run/enough"}})
		assert.NoError(t, err)
		assert.Equal(t, 0, r.Code, r.Stderr)
	})
	// A pod with hostNetwork has nothing of the host but its network.
	n.WriteFile("crowds", crowds)
	full, enough := n.Path("full"), n.Path("enough")
	pod := n.Program("pod", "/usr/bin/nsenter", "--net="+network, "unshare", "--mount", "perl", n.Path("crowds"), many, full, enough)
	node.Eventually(t, "crowds", node.Patience, func() error {
		_, err := os.Stat(full)
		if r := h.Exec("test", "-e", "/run/joe/full"); r.Code != 0 {
			err = errors.Join(err, fmt.Errorf("joe has not %s connections", many))
		}
		return err
	})
	return func() {
		n.WriteFile("enough", "")
		h.WriteFile("/run/enough", "")
		crowd.Wait()
		assert.Equal(t, 0, pod.Wait(node.Patience).Code)
	}
}
