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

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
)

// crowds is a program that holds a number of connections to the local registry, reopens each that is closed, and ends
// when a file exists. It makes another file once it has had all of them open. Of four connections, one sends nothing,
// one half of a request, one a byte now and then, and one a whole request whose response it does not read.
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

// TestHostCrowdAtTheLocalRegistry has a user of the node and a pod with hostNetwork hold more connections to the local
// registry than it serves at once. containerd still gets each of its responses, which come from the local registry
// alone.
func TestHostCrowdAtTheLocalRegistry(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		n := node.Start(t, node.Options{Containerd: node.Containerd2})
		first := behindTheGate(t, n)
		h := host.New(t, n, root)
		h.Install(host.PackagesOf(t).Older)
		story.HostFiles(h, n)
		h.WriteFile("/usr/bin/crowds", crowds)
		h.Enable(story.LocalRegistrySocket)
		h.DropIn(story.LocalRegistryService, story.BusyMachine)
		network := h.SharedNetwork()
		require.Contains(t, []string{"running", "degraded"}, h.Boot())
		h.Must("systemctl", "stop", host.Service) // the daemon would write the table
		h.WriteFile("/var/lib/image-update-agent/"+table.File, n.ReadFile(story.LocalRegistryTable))
		n.Containerd.Stop()
		n.Containerd.StartIn(network)
		leave := holdTheLocalRegistry(t, n, h, network)
		for range 10 {
			image, err := n.CRI().Pull(story.LocalRegistryImage)
			require.NoError(t, err)
			assert.Equal(t, first, image)
		}
		leave()
		h.Await(story.LocalRegistryService, "ActiveState", "inactive")
		said := h.Journal(story.LocalRegistryService)
		assert.Contains(t, said, "closed connections to the local registry")
		starts := strings.Count(said, "Started ")
		assert.LessOrEqual(t, strings.Count(said, "were cut"), starts, "a process says it once")
		assert.Equal(t, map[string]string{"ActiveState": "active", "Result": "success"}, h.Show(story.LocalRegistrySocket, "ActiveState", "Result"))
		assert.Equal(t, "success", h.Show(story.LocalRegistryService, "Result")["Result"])
	})
}

// behindTheGate brings an image to a node whose containerd then asks the local registry first and reaches no other
// host.
func behindTheGate(t *testing.T, n *node.Node) (image string) {
	t.Helper()
	n.WriteHosts(story.LocalRegistryRegistry, n.Registry)
	n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{Answer: "one"})
	image, err := n.CRI().Pull(story.LocalRegistryImage)
	require.NoError(t, err)
	require.NoError(t, registryhost.NewStore(filepath.Dir(n.Path(story.LocalRegistryTable))).Save(t.Context(), localregistry.Table{Entries: []localregistry.Entry{
		story.EntryOf(t, n.Registry, "demo/velum", "4.0.0-rev1"),
	}}))
	story.LocalRegistryVerb(t, n, 0, "enable", story.LocalRegistryRegistry, "--gate", "--write")
	n.Registry.Down()
	return image
}

// holdTheLocalRegistry starts two crowds and returns when they hold their connections. leave ends them.
func holdTheLocalRegistry(t *testing.T, n *node.Node, h *host.Host, network string) (leave func()) {
	t.Helper()
	const many = "700" // connections of each crowd; the limit of open files is 1024
	h.AddUser("joe")
	h.Must("install", "-d", "-o", "joe", "/run/joe")
	var crowd sync.WaitGroup
	crowd.Go(func() {
		r, err := h.Try(host.Command{User: "joe", Argv: []string{"perl", "/usr/bin/crowds", many, "/run/joe/full", "/run/enough"}})
		assert.NoError(t, err)
		assert.Equal(t, 0, r.Code, r.Stderr)
	})
	// Of the host, a pod with hostNetwork has the network only.
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
