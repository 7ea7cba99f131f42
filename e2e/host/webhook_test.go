// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// chat is a server that stores the messages it gets, unless it is away.
type chat struct {
	*httptest.Server

	mu       sync.Mutex
	isAway   bool
	messages []string
}

func newChat(t *testing.T) *chat {
	t.Helper()
	c := &chat{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		var body struct{ Text string }
		text, _ := io.ReadAll(r.Body)
		if c.isAway || r.URL.Path != "/services/s3cr3t" || json.Unmarshal(text, &body) != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		c.messages = append(c.messages, body.Text)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *chat) away(is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isAway = is
}

// awaits waits for a message with this line.
func (c *chat) awaits(t *testing.T, line string) {
	t.Helper()
	node.Eventually(t, "the chat", story.Ready, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, message := range c.messages {
			if strings.Contains("\n"+message+"\n", "\n"+line+"\n") {
				return nil
			}
		}
		return fmt.Errorf("no message has %q: %q", line, c.messages)
	})
}

// TestHostWebhook checks that the webhook reports staged and applied releases to a chat server. A server that was away
// gets the message later, also after a restart of the daemon. The journal never contains the URL.
func TestHostWebhook(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, n, port := installed(t, root, node.Options{Containerd: node.Containerd2, Kubelet: true})
		require.Equal(t, "running", h.Boot())
		c := newChat(t)
		h.WriteFile("/etc/image-update-agent/chat.url", c.URL+"/services/s3cr3t\n")
		h.Must("chmod", "600", "/etc/image-update-agent/chat.url")
		h.WriteFile("/etc/image-update-agent/config.yaml", story.HostConfig+"nodeName: node-1\n"+
			"hooks: {webhooks: [{name: chat, urlFile: /etc/image-update-agent/chat.url, format: text, events: [staged, applied]}]}\n")
		h.Must("systemctl", "reload", host.Service)
		story.IsCurrent(t, hostSays(t, h, "check"))
		n.WaitAnswer(port, "4.0.0-rev1-build1.1")
		hostSays(t, h, "check")
		h.Must("chmod", "644", "/etc/image-update-agent/chat.url")
		assert.Contains(t, h.Exec("image-update-agent", "doctor").Stdout, "others may read it")
		h.Must("chmod", "600", "/etc/image-update-agent/chat.url")

		const staged = "staged: %s/demo/velum 4.0.0-rev1-build1.1 to %s (rebuild) in velum.yaml"
		c.away(true)
		n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.2", node.Image{})
		require.Equal(t, status.StateStaged, hostSays(t, h, "check").State)
		rests(t, h, "failed")
		said := h.Journal(hookService)
		assert.Contains(t, said, "webhook chat: "+c.Listener.Addr().String()+": 502 Bad Gateway")
		assert.NotContains(t, said, "s3cr3t")
		c.away(false)
		assert.Contains(t, h.ReadFile("/var/lib/image-update-agent/hook-retry.json"), `"failures":`)
		h.WriteFile("/var/lib/image-update-agent/hook-retry.json", `{"consumers":{"chat":{"failures":1,"after":"2026-01-01T00:00:00Z"}}}`)
		h.Must("systemctl", "restart", host.Service)
		hostSays(t, h, "check")
		c.awaits(t, fmt.Sprintf(staged, n.Registry.Host, "4.0.0-rev1-build1.2"))

		h.Must("image-update-agent", "apply")
		c.awaits(t, fmt.Sprintf("applied: %s/demo/velum 4.0.0-rev1-build1.1 to 4.0.0-rev1-build1.2 in velum.yaml", n.Registry.Host))
		rests(t, h, "inactive")
	})
}
